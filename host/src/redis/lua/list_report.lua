-- What a reliable list looks like from outside.
--
-- KEYS  1 list, 2 retry list, 3 delayed (sorted set: token .. value -> due), 4 instances (sorted
--       set: instance -> last seen), 5 recovery set, if there is one (instance .. token -> claimed)
-- ARGV  1 what the key of a processing list begins with
-- reply { values that nobody has claimed, values that wait for their time, ms until the next is due
--       (-1 = none), ms since the oldest claim or renewal (-1 = not known),
--       instances: { name, entries it holds, ms since it was seen } each }
--
-- Reads processing lists that it is not told of: all are in the slot of KEYS[1].
-- Atomicity: reads only. A repeat looks again.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local instances = {}
local seen = redis.call('ZRANGE', KEYS[4], 0, -1, 'WITHSCORES')
for i = 1, #seen, 2 do
  local idle = math.max(0, now - tonumber(seen[i + 1]))
  instances[#instances + 1] = { seen[i], redis.call('LLEN', ARGV[1] .. seen[i]), string.format('%.0f', idle) }
end
local next, oldest = -1, -1
local due = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2]
if due then
  next = math.max(0, tonumber(due) - now)
end
if KEYS[5] then
  local first = redis.call('ZRANGE', KEYS[5], 0, 0, 'WITHSCORES')[2]
  if first then
    oldest = math.max(0, now - tonumber(first))
  end
end
local waiting = redis.call('LLEN', KEYS[1]) + redis.call('LLEN', KEYS[2])
return { waiting, redis.call('ZCARD', KEYS[3]), string.format('%.0f', next), string.format('%.0f', oldest), instances }
