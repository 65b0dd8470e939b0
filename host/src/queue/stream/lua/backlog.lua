-- Count the waiting messages of a group: unread entries (any or none), pending ones, and delayed ones.
--
-- KEYS  1 stream, 2 delayed (sorted set of messages published for later), 3 parked deliveries (sorted set)
-- ARGV  1 group, 2 consumer of parked deliveries, 3 consumer that says that not all of them are pending
-- reply { 1 if something is unread else 0, pending, delayed }; { -1, 0, 0 } without the group
--
-- If the consumer of parked deliveries was deleted, their records count.
-- Atomicity: reads only. A repeat asks again. `lag` is not used: it may be nil, and counts trimmed entries.
for _, info in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local group = named(info)
  if group['name'] == ARGV[1] then
    local unread = behind(group['last-delivered-id'], 1)
    local held, records = group['pending'], redis.call('ZCARD', KEYS[3])
    if held == 0 and records > 0 then
      local names = {}
      for _, info in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
        names[named(info)['name']] = true
      end
      held = (names[ARGV[3]] or not names[ARGV[2]]) and records or 0
    end
    return { #unread, held, redis.call('ZCARD', KEYS[2]) }
  end
end
return { -1, 0, 0 }
