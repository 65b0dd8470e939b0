-- What waits in a group: whether anything is unread, how much is pending, and what comes later.
--
-- KEYS  1 stream, 2 delayed (sorted set of what was published for later)
-- ARGV  1 group
-- reply { 1 if something is unread else 0, pending, delayed }; { -1, 0, 0 } without the group
--
-- Atomicity: reads only. A repeat asks again. `lag` is not asked: it may be nil, and counts trimmed entries.
for _, info in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local group = {}
  for i = 1, #info, 2 do
    group[info[i]] = info[i + 1]
  end
  if group['name'] == ARGV[1] then
    local unread = redis.call('XRANGE', KEYS[1], '(' .. group['last-delivered-id'], '+', 'COUNT', 1)
    return { #unread, group['pending'], redis.call('ZCARD', KEYS[2]) }
  end
end
return { -1, 0, 0 }
