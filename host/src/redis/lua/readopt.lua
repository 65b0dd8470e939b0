-- After a repair: take back deliveries of this host that the new group does not know.
--
-- KEYS  1 stream
-- ARGV  1 group, 2 consumer (self), 3 mark of the group; then per delivery: id, count
-- reply one word per delivery: done | trimmed | stolen
--
-- Atomicity: the first command can fail (no group, wrong type), before anything is written; later ones
-- only if the group was made again.
-- A repeat finds them held, and leaves them.
local out = {}
for i = 4, #ARGV, 2 do
  local word = obstacle(ARGV[i])
  if word == 'gone' then
    word = hold(ARGV[2], ARGV[i], 'FORCE', 'RETRYCOUNT', ARGV[i + 1], 'JUSTID')
  end
  out[#out + 1] = word or 'done'
end
return out
