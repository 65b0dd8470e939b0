-- Report how much outboxes hold.
--
-- KEYS  outboxes
-- ARGV  none
-- reply per outbox: how many entries it has, how long ago its oldest one was written, ms (-1 = it has none)
--
-- Atomicity: it only reads.
-- A repeat reports what is there by then.
local out = {}
for _, key in ipairs(KEYS) do
  local oldest = redis.call('XRANGE', key, '-', '+', 'COUNT', 1)[1]
  local age = oldest and math.max(0, now - tonumber(string.match(oldest[1], '^%d+'))) or -1
  out[#out + 1] = redis.call('XLEN', key)
  out[#out + 1] = age
end
return out
