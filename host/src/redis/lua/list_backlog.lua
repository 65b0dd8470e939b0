-- What waits in a reliable list.
--
-- KEYS  1 list, 2 retry list, 3 delayed (sorted set), 4 instances
-- ARGV  1 what the key of a processing list begins with
-- reply { values that nobody has claimed, values that wait for their time, values that instances hold }
--
-- Reads processing lists that it is not told of: all are in the slot of KEYS[1].
-- Atomicity: reads only. A repeat asks again.
local held = 0
for _, instance in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do
  held = held + redis.call('LLEN', ARGV[1] .. instance)
end
local waiting = redis.call('LLEN', KEYS[1]) + redis.call('LLEN', KEYS[2])
return { waiting, redis.call('ZCARD', KEYS[3]), held }
