-- Renew the leases of deliveries that this host still owns; never steal one back.
--
-- KEYS  1 stream
-- ARGV  1 group, 2 consumer (self), 3 mark of the group; then ids
-- reply one word per id: done | gone | trimmed | stolen
--
-- Atomicity: the first command can fail (no group, wrong type), before anything is written; later ones
-- only if the group was made again.
-- A repeat renews again. Counts stay as they are.
local out = {}
for i = 4, #ARGV do
  out[#out + 1] = obstacle(ARGV[i]) or hold(ARGV[2], ARGV[i], 'JUSTID')
end
return out
