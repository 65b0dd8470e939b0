-- Write the terms of this host, and learn those of all hosts of the queue.
--
-- KEYS  1 terms of the hosts, 2 recovery set of a reliable list, if there is one; its member with the score
--       inf is the queue that it belongs to
-- ARGV  1 this host, 2 its idle time, ms, 3 for how long that holds, ms, 4 the queue, 5 'open' (first) |
--       'stay' | 'leave' (last)
-- reply { largest idle time, ms, smallest, 1 if all use the same recovery set else 0, another queue that
--       the recovery set belongs to ('' = none) }
--
-- An empty recovery set that has expired belongs to no queue: only the first call makes it.
-- Atomicity: of two queues with one recovery set, the first one owns it. It adds a few bytes for each
-- host, and runs out of memory as well: else other hosts could not know what protects a message.
-- A repeat says the same again.
local own = ARGV[2] .. ' ' .. recovering(KEYS[2] or '') .. ARGV[1]
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', text(now), 'LIMIT', 0, 100)) do
  redis.call('ZREM', KEYS[1], gone)
end
local owner = ''
if KEYS[2] then
  for _, queue in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '+inf', '+inf', 'LIMIT', 0, 2)) do
    owner = queue ~= ARGV[4] and queue or owner
  end
end
if owner ~= '' and ARGV[5] == 'open' then
  return { 0, 0, 0, owner }
end
if ARGV[5] == 'leave' then
  redis.call('ZREM', KEYS[1], own)
  -- The last one that uses it leaves nothing that says whose an empty set is.
  if KEYS[2] and redis.call('ZCARD', KEYS[2]) == 1 and not is_used(KEYS[1], KEYS[2]) then
    redis.call('ZREM', KEYS[2], ARGV[4])
  end
else
  redis.call('ZADD', KEYS[1], text(now + ARGV[3]), own)
  -- It may lack this right: then the terms of the last hosts stay until another one comes.
  redis.pcall('PEXPIRE', KEYS[1], ARGV[3], 'NX')
  redis.pcall('PEXPIRE', KEYS[1], ARGV[3], 'GT')
  if KEYS[2] and owner == '' and (ARGV[5] == 'open' or redis.call('ZCARD', KEYS[2]) > 0) then
    redis.call('ZADD', KEYS[2], 'inf', ARGV[4])
  end
end
local largest, smallest, alike = agreed(KEYS[1], ARGV[2], KEYS[2])
return { largest, smallest, alike and 1 or 0, owner }
