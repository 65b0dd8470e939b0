-- Report the state of a reliable list.
--
-- KEYS  1 list, 2 retry list, 3 delayed (sorted set: token .. value -> due), 4 instances (sorted
--       set: instance -> last seen), 5 recovery set, if there is one (instance .. token -> claimed)
-- ARGV  1 beginning of the key of a processing list
-- reply { values that no instance has claimed, delayed values, ms until the next is due
--       (-1 = none), ms since the oldest claim or renewal (-1 = not known),
--       instances: { name, entries it holds, ms since it was seen } each }
--
-- It reads processing lists that are not among KEYS: all are in the slot of KEYS[1].
-- Atomicity: reads only. A repeat looks again.
local instances = {}
local seen = redis.call('ZRANGE', KEYS[4], 0, -1, 'WITHSCORES')
for i = 1, #seen, 2 do
  local idle = math.max(0, now - tonumber(seen[i + 1]))
  instances[#instances + 1] = { seen[i], redis.call('LLEN', ARGV[1] .. seen[i]), text(idle) }
end
local oldest = -1
if KEYS[5] then
  local first = redis.call('ZRANGE', KEYS[5], 0, 0, 'WITHSCORES')[2]
  -- The member with the score inf says whose the set is.
  if first and tonumber(first) < math.huge then
    oldest = math.max(0, now - tonumber(first))
  end
end
local waiting = redis.call('LLEN', KEYS[1]) + redis.call('LLEN', KEYS[2])
return { waiting, redis.call('ZCARD', KEYS[3]), text(wait(KEYS[3])), text(oldest), instances }
