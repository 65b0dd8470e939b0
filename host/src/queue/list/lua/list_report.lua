-- Report the state of a reliable list.
--
-- KEYS  1 list, 2 retry list, 3 delayed (sorted set: token .. value -> due), 4 instances (sorted
--       set: instance -> last seen)
-- ARGV  1 beginning of the key of a processing list, 2 how many bytes of an entry to show
-- reply { values that no instance has claimed, delayed values, ms until the next is due
--       (-1 = none), now in epoch ms, instances: { name, entries it holds, ms since it was seen, the beginning of
--       the entry that it took first ('' = not known) } each }
--
-- It reads processing lists that are not among KEYS: all are in the slot of KEYS[1]. Large entries are read from a
-- few of them only, those that were seen longest ago first.
-- Atomicity: reads only. A repeat looks again.
local instances, looked = {}, 0
local seen = redis.call('ZRANGE', KEYS[4], 0, -1, 'WITHSCORES')
for i = 1, #seen, 2 do
  local idle = math.max(0, now - tonumber(seen[i + 1]))
  local key, first = ARGV[1] .. seen[i], ''
  local length = redis.call('LLEN', key)
  if length > 0 and looked < 4194304 then
    -- Not each user that may count may read.
    local page = redis.pcall('LRANGE', key, -1, -1)
    if not page.err then
      looked = looked + #page[1]
      first = string.sub(page[1], 1, ARGV[2])
    end
  end
  instances[#instances + 1] = { seen[i], length, text(idle), first }
end
local waiting = redis.call('LLEN', KEYS[1]) + redis.call('LLEN', KEYS[2])
return { waiting, redis.call('ZCARD', KEYS[3]), text(wait(KEYS[3])), text(now), instances }
