-- Report the state of a host, for a while.
--
-- KEYS  1 hosts (sorted set: name -> last seen), 2 this host (string)
-- ARGV  1 its name, 2 its state ('' = it leaves), 3 for how long that holds, ms, 4 for
--       how long names are kept, ms
-- reply OK
--
-- Atomicity: nothing here is read by anything but people. A repeat says the same again.
if ARGV[2] == '' then
  redis.call('PEXPIRE', KEYS[2], 0)
  redis.call('ZREM', KEYS[1], ARGV[1])
  return 'OK'
end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
redis.call('ZADD', KEYS[1], text(now), ARGV[1])
local before = text(now - ARGV[4])
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', before, 'LIMIT', 0, 100)) do
  redis.call('ZREM', KEYS[1], name)
end
return 'OK'
