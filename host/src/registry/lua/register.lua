-- Say that a queue is served, in the list of all queues.
--
-- KEYS  1 queues (sorted set: description -> last seen)
-- ARGV  1 description of the queue, 2 for how long it is kept, ms, 3 the most queues that are kept
-- reply OK
--
-- Atomicity: nothing here is read by anything but people. A repeat says the same again.
redis.call('ZADD', KEYS[1], text(now), ARGV[1])
local before = text(now - ARGV[2])
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', before, 'LIMIT', 0, 100)) do
  redis.call('ZREM', KEYS[1], name)
end
local over = redis.call('ZCARD', KEYS[1]) - ARGV[3]
if over > 0 then
  for _, name in ipairs(redis.call('ZRANGE', KEYS[1], 0, math.min(over, 100) - 1)) do
    redis.call('ZREM', KEYS[1], name)
  end
end
return 'OK'
