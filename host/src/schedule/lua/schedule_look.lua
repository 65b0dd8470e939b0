-- Find the schedules of a queue that are due, and when the next one is.
--
-- KEYS  1 schedules (hash), 2 ticks (sorted set: schedule, or `run ` and a schedule -> its next tick, epoch ms by this
--       server's clock)
-- ARGV  none
-- reply { now, zone data of the next ticks ('' = there is no schedule), the first tick to come (-1 = none), then name and
--       tick of each that is due, the oldest first }
--
-- Atomicity: it reads. A repeat looks again.
if redis.call('EXISTS', KEYS[1]) == 0 then
  return { now, '', -1 }
end
local first = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. text(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
local out = { now, redis.call('HGET', KEYS[1], 'zones') or '0', first and tonumber(first) or -1 }
-- There are never more schedules than this.
for _, part in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', text(now), 'WITHSCORES', 'LIMIT', 0, 2000)) do
  out[#out + 1] = part
end
return out
