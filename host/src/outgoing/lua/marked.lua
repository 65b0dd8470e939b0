-- Which messages were handled already.
--
-- KEYS  the sets of marks
-- ARGV  marks
-- reply one number per mark: 1 = some set has it, else 0
--
-- Atomicity: reads only. A repeat asks again.
local out = {}
for i = 1, #ARGV do
  out[i] = 0
end
for _, key in ipairs(KEYS) do
  for i, found in ipairs(redis.call('SMISMEMBER', key, unpack(ARGV))) do
    out[i] = math.max(out[i], found)
  end
end
return out
