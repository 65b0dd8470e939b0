-- Forget instances of a reliable list that were not seen for long and hold nothing.
--
-- KEYS  1 instances (sorted set: instance -> last seen)
-- ARGV  1 for how long they must not have been seen, ms, 2 at most how many, 3 beginning of the
--       key of a processing list, 4 beginning of the key of a hash of starts, 5 only this instance ('' = any)
-- reply how many were forgotten
--
-- It reads processing lists that are not among KEYS: all are in the slot of KEYS[1].
-- Atomicity: nothing can be claimed between the look and the removal. A repeat forgets others.
local before = text(now - ARGV[1])
local names = { ARGV[5] }
if ARGV[5] == '' then
  names = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', before, 'LIMIT', 0, 10 * ARGV[2])
end
local forgotten = 0
for _, name in ipairs(names) do
  if forgotten >= tonumber(ARGV[2]) then
    break
  end
  if redis.call('LLEN', ARGV[3] .. name) == 0 then
    redis.call('DEL', ARGV[4] .. name)
    forgotten = forgotten + redis.call('ZREM', KEYS[1], name)
  end
end
return forgotten
