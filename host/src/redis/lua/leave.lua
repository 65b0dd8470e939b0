-- Leave isolated suspects under this host's own name, idle long enough to be orphans. Parked, they
-- would lose the mark that tells other hosts to run them isolated.
--
-- KEYS  1 stream, 2 fences (sorted set: consumer -> number of a call)
-- ARGV  1 group, 2 consumer (self), 3 number of this call, 4 idle time to set, ms; then per
--       delivery: id, count it must have, count it keeps
-- reply one word per delivery: done | gone | trimmed | stolen
--
-- Atomicity: only the first command can fail (no group, wrong type), before anything is written.
-- A repeat finds the count to keep, and sets the same again.
local out = {}
for i = 5, #ARGV, 3 do
  local id, keep = ARGV[i], ARGV[i + 2]
  out[#out + 1] = obstacle(id, ARGV[i + 1], keep)
    or hold(ARGV[2], id, 'IDLE', ARGV[4], 'RETRYCOUNT', keep, 'JUSTID')
end
return out
