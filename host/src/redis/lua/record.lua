-- Record starts before the handler runs, or confirm leases (expected = written). Renews the leases.
--
-- KEYS  1 stream
-- ARGV  1 group, 2 consumer (self), 3 mark of the group; then per delivery: id, expected count, count
--       to write
-- reply one word per delivery: done | gone | trimmed | stolen
--
-- Atomicity: the first command can fail (no group, wrong type), before anything is written; later ones
-- only if the group was made again.
-- A repeat finds the count already written and writes it again: done.
local out = {}
for i = 4, #ARGV, 3 do
  local id, written = ARGV[i], ARGV[i + 2]
  out[#out + 1] = obstacle(id, ARGV[i + 1], written)
    or hold(ARGV[2], id, 'RETRYCOUNT', written, 'JUSTID')
end
return out
