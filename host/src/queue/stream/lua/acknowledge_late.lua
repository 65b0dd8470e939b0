-- Take deliveries off the queue that may have come to other hosts by now, or that have not started here: they are
-- handled.
--
-- KEYS  1 stream, 2 late acknowledgements (sorted set: id -> when, epoch ms), 3 parked deliveries (sorted set:
--       id -> due)
-- ARGV  1 group, 2 consumer (self), 3 for how long a late acknowledgement is noted, ms, 4 at most how many are
--       noted; then ids
-- reply OK
--
-- The next owner of such a delivery finds it gone although its lease lasts. The note says why: else it would
-- take the delivery for lost, and bring it back; also one that is not pending now, because the consumer of its next
-- owner was deleted. A record among the parked deliveries would do the same, and goes.
-- Atomicity: only the first command can fail (no group, wrong type). A note that cannot be written is left out.
-- A repeat finds nothing pending.
local ids, notes = arguments(5, 1), { 'ZADD', KEYS[2] }
look(ids, ARGV[2])
for _, id in ipairs(ids) do
  local held = pending(id)
  if not held or held[2] ~= ARGV[2] then
    notes[#notes + 1] = text(now)
    notes[#notes + 1] = id
  end
end
redis.call('XACK', KEYS[1], ARGV[1], unpack(ids))
redis.pcall('ZREM', KEYS[3], unpack(ids))
forget_held(KEYS[3], ids)
if #notes > 2 and type(redis.pcall(unpack(notes))) == 'number' then
  local old = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', text(now - ARGV[3]), 'LIMIT', 0, 100)
  if redis.call('ZCARD', KEYS[2]) - #old > tonumber(ARGV[4]) then
    old = redis.call('ZRANGE', KEYS[2], 0, #ids)
  end
  if #old > 0 then
    redis.call('ZREM', KEYS[2], unpack(old))
  end
end
return 'OK'
