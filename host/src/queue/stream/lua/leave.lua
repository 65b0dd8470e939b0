-- Leave isolated suspects under this host's own name, idle long enough to be orphans. Parked, they
-- would lose the mark with which other hosts run them isolated.
--
-- KEYS  1 stream, 2 fences (sorted set: consumer -> number of a call)
-- ARGV  1 group, 2 consumer (self), 3 mark of the group, 4 number of this call, 5 idle time to set,
--       ms; then per delivery: id, count it must have, count it keeps
-- reply one word per delivery: done | gone | trimmed | stolen
--
-- Atomicity: only reads can fail (no group, wrong type, the group was made again), before anything is written.
-- A repeat finds the count to keep, and sets the same again.
local ids, keep = arguments(6, 3), arguments(8, 3)
return hold(ARGV[2], ids, obstacles(ids, arguments(7, 3), keep), keep, 'IDLE', ARGV[5])
