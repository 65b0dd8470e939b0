-- Take back parked deliveries that are due, with the count they kept.
--
-- KEYS  1 stream, 2 parked deliveries (sorted set: id -> due, epoch ms by this server's clock)
-- ARGV  1 group, 2 consumer (self), 3 mark of the group, 4 consumer of parked deliveries,
--       5 consumer that says that not all of them are pending, 6 at most how many,
--       7 after how many bytes of fields to stop
-- reply { claims, trimmed, ms until the next is due (-1 = none) }
--
-- A record without a pending delivery was parked in an earlier group, or its delivery was settled late.
-- While the group still lacks deliveries of an earlier one, it is claimed with one start: its count is
-- lost. Unread entries are read like any others.
-- Atomicity: each is claimed before its record goes. A record of a delivery that is not parked goes as
-- well. Fails before the first record without a delivery if the group was made again.
-- A repeat takes others. The deliveries of an earlier call are owned by this host, and found as orphans
-- if its reply was lost.
for _, id in ipairs(due(KEYS[2], ARGV[6])) do
  if bytes >= tonumber(ARGV[7]) then
    break
  end
  local held = redis.call('XPENDING', KEYS[1], ARGV[1], id, id, '1')[1]
  if held and held[2] == ARGV[4] then
    claim(held)
  elseif not held and same_group()[ARGV[5]] and not is_unread(id) then
    claim({ id, ARGV[4], 0, 1 }, 'FORCE')
  end
  redis.call('ZREM', KEYS[2], id)
end
return { claims, trimmed, wait(KEYS[2]) }
