-- Take back parked deliveries that are due, with the count they kept.
--
-- KEYS  1 stream, 2 parked deliveries (sorted set: id -> due, epoch ms by this server's clock)
-- ARGV  1 group, 2 consumer (self), 3 consumer of parked deliveries, 4 at most how many,
--       5 after how many bytes of fields to stop
-- reply { claims, trimmed, ms until the next is due (-1 = none) }
--
-- Atomicity: each is claimed before its record goes. A record without a parked delivery (the delivery
-- was acknowledged late, or taken over) goes as well.
-- A repeat takes others. The deliveries of an earlier call are owned by this host, and found as orphans
-- if its reply was lost.
for _, id in ipairs(due(KEYS[2], ARGV[4])) do
  if bytes >= tonumber(ARGV[5]) then
    break
  end
  local held = redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1)[1]
  if held and held[2] == ARGV[3] then
    claim(held)
  end
  redis.call('ZREM', KEYS[2], id)
end
return { claims, trimmed, wait(KEYS[2]) }
