-- Record starts before the handler runs, or confirm leases (expected = written). Renews the leases.
--
-- KEYS  1 stream, 2 parked deliveries (sorted set: id -> due)
-- ARGV  1 group, 2 consumer (self), 3 mark of the group, 4 '1' if an earlier try may have been carried out; then per
--       delivery: id, expected count, count to write
-- reply one word per delivery (see `told`): done | gone | trimmed | stolen
--
-- The records of the claims go: the host knows them.
-- Atomicity: only reads can fail (no group, wrong type, the group was made again), before anything is written.
-- A repeat finds the count already written and writes it again: done. A first try that finds it does not: another host
-- wrote it.
local ids, written = arguments(5, 3), arguments(7, 3)
local words = hold(ARGV[2], ids, obstacles(ids, arguments(6, 3), ARGV[4] == '1' and written), written)
forget_records(KEYS[2], ids, words)
return told(words)
