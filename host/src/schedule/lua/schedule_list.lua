-- Read all schedules of a queue, without their bodies.
--
-- KEYS  1 schedules (hash), 2 ticks (sorted set)
-- ARGV  none
-- reply { now, then of each its name, definition, record and next tick (-1 = none) }
--
-- Atomicity: it reads. A repeat reads again.
local out = { now }
if redis.call('EXISTS', KEYS[1]) == 0 then
  return out
end
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if field:sub(1, 2) == 'd:' then
    local name = field:sub(3)
    out[#out + 1] = name
    out[#out + 1] = redis.call('HGET', KEYS[1], field)
    out[#out + 1] = redis.call('HGET', KEYS[1], 'r:' .. name) or '{}'
    out[#out + 1] = tonumber(redis.call('ZSCORE', KEYS[2], name) or -1)
  end
end
return out
