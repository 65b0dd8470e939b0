-- Hold a message until it is due: before that it is on no queue.
--
-- KEYS  1 delayed (sorted set: token .. message -> due, epoch ms by this server's clock)
-- ARGV  1 delay in ms, 2 token .. message
-- reply when it is due, epoch ms
--
-- Atomicity: one write. A repeat finds it waiting, and changes nothing; one that comes after it was
-- due publishes it again, as with any message whose receipt was lost.
local due = redis.call('ZSCORE', KEYS[1], ARGV[2])
if due then
  return tonumber(due)
end
local time = redis.call('TIME')
due = time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[1])
redis.call('ZADD', KEYS[1], string.format('%.0f', due), ARGV[2])
return due
