-- Leave isolated suspects under this host's own name, idle long enough to be orphans. Parked, they
-- would lose the mark that tells other hosts to run them isolated.
--
-- KEYS  1 stream, 2 fences (sorted set: consumer -> number of a call)
-- ARGV  1 group, 2 consumer (self), 3 mark of the group, 4 number of this call, 5 idle time to set,
--       ms; then per delivery: id, count it must have, count it keeps
-- reply one word per delivery: done | gone | trimmed | stolen
--
-- Atomicity: the first command can fail (no group, wrong type), before anything is written; later ones
-- only if the group was made again.
-- A repeat finds the count to keep, and sets the same again.
local out = {}
for i = 6, #ARGV, 3 do
  local id, keep = ARGV[i], ARGV[i + 2]
  out[#out + 1] = obstacle(id, ARGV[i + 1], keep)
    or hold(ARGV[2], id, 'IDLE', ARGV[5], 'RETRYCOUNT', keep, 'JUSTID')
end
return out
