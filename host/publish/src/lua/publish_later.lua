-- Keep a message beside the queue until it is due.
--
-- KEYS  1 delayed (sorted set: token .. message -> due, epoch ms by this server's clock)
-- ARGV  1 delay in ms, 2 token .. message
-- reply when it is due, epoch ms
--
-- Atomicity: one write. A repeat finds it waiting, and changes nothing; a repeat after it was due
-- publishes it again, as with any message whose receipt was lost.
local due = redis.call('ZSCORE', KEYS[1], ARGV[2])
if due then
  return tonumber(due)
end
due = now + ARGV[1]
redis.call('ZADD', KEYS[1], text(due), ARGV[2])
return due
