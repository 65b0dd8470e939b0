-- Count the waiting messages of a group: unread entries (any or none), pending ones, and delayed ones.
--
-- KEYS  1 stream, 2 delayed (sorted set of messages published for later), 3 parked deliveries (sorted set)
-- ARGV  1 group
-- reply { 1 if something is unread else 0, pending, delayed }; { -1, 0, 0 } without the group
--
-- A parked delivery may have lost its place in the pending list: its record counts.
-- Atomicity: reads only. A repeat asks again. `lag` is not used: it may be nil, and counts trimmed entries.
for _, info in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local group = named(info)
  if group['name'] == ARGV[1] then
    local unread = behind(group['last-delivered-id'], 1)
    return { #unread, math.max(group['pending'], redis.call('ZCARD', KEYS[3])), redis.call('ZCARD', KEYS[2]) }
  end
end
return { -1, 0, 0 }
