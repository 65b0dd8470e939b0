-- Take deliveries off the queue that this host has given up, or whose copy stands elsewhere.
--
-- KEYS  1 stream
-- ARGV  1 group, 2 consumer (self); then per delivery: id, count it must have
-- reply one word per delivery: done | gone | stolen
--
-- Atomicity: only the first command can fail (no group, wrong type), before anything is written.
-- A repeat finds nothing: gone.
local out = {}
for i = 3, #ARGV, 2 do
  local held = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1)[1]
  if not held then
    out[#out + 1] = 'gone'
  elseif held[2] ~= ARGV[2] or held[4] ~= tonumber(ARGV[i + 1]) then
    out[#out + 1] = 'stolen'
  else
    redis.call('XACK', KEYS[1], ARGV[1], ARGV[i])
    out[#out + 1] = 'done'
  end
end
return out
