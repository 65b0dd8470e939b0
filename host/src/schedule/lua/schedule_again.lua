-- Set the next ticks that newer zone data gives.
--
-- KEYS  1 schedules (hash), 2 ticks (sorted set)
-- ARGV  1 zone data, then of each schedule: name, definition, the next tick by now, the new one
-- reply 1 = all are set, 0 = one has changed meanwhile: look again
--
-- Atomicity: each next tick that is still the same is set. A repeat finds them set, and says 0: the caller looks again.
local all = 1
for at = 2, #ARGV, 4 do
  local name = ARGV[at]
  local due = redis.call('ZSCORE', KEYS[2], name)
  if due and tonumber(due) == tonumber(ARGV[at + 2]) and redis.call('HGET', KEYS[1], 'd:' .. name) == ARGV[at + 1] then
    redis.call('ZADD', KEYS[2], ARGV[at + 3], name)
  else
    all = 0
  end
end
if all == 1 then
  redis.call('HSET', KEYS[1], 'zones', ARGV[1])
end
return all
