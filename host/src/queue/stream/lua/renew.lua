-- Renew the leases of deliveries that this host still owns; never steal one back.
--
-- KEYS  1 stream, 2 parked deliveries (sorted set: id -> due)
-- ARGV  1 group, 2 consumer (self), 3 mark of the group; then ids
-- reply one word per id (see `told`): done | gone | trimmed | stolen
--
-- The records of the claims go: from now on the host knows them.
-- Atomicity: only reads can fail (no group, wrong type, the group was made again), before anything is written.
-- A repeat renews again. Counts stay as they are.
local ids, counts = arguments(4, 1), {}
for i = 1, #ids do
  counts[i] = ''
end
local words = hold(ARGV[2], ids, obstacles(ids), counts)
forget_records(KEYS[2], ids, words)
return told(words)
