-- Take deliveries off the queue that this host has given up, or that are copied elsewhere.
--
-- KEYS  1 stream
-- ARGV  1 group, 2 consumer (self), 3 mark of the group; then per delivery: id, count it must have
-- reply one word per delivery: done | gone | stolen
--
-- Atomicity: the first command can fail (no group, wrong type), before anything is written; later ones
-- only if the group was made again.
-- A repeat finds nothing: gone.
local out = {}
for i = 4, #ARGV, 2 do
  local word = obstacle(ARGV[i], ARGV[i + 1])
  if not word then
    redis.call('XACK', KEYS[1], ARGV[1], ARGV[i])
  end
  out[#out + 1] = word or 'done'
end
return out
