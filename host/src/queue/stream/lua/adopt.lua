-- Read deliveries of this host again that it does not know: their reply was lost. The count stays.
--
-- KEYS  1 stream, 2 parked deliveries (sorted set: id -> due)
-- ARGV  1 group, 2 consumer (self), 3 idle time they must have, ms,
--       4 after how many bytes of fields to stop, 5 after how long the record of a claim comes up again, ms; then
--       ids
-- reply { claims, trimmed, the first id that was left for the bytes ('' = none) }
--
-- Atomicity: only the first command can fail (no group, wrong type), before anything is written.
-- A repeat finds them too young: the next scan but one has them again.
local left = ''
for i = 6, #ARGV do
  if bytes >= tonumber(ARGV[4]) then
    left = ARGV[i]
    break
  end
  local held = redis.call('XPENDING', KEYS[1], ARGV[1], 'IDLE', ARGV[3], ARGV[i], ARGV[i], 1, ARGV[2])[1]
  if held then
    claim({ held }, tonumber(ARGV[4]))
  end
end
keep_records(KEYS[2], ARGV[5], 'XX')
return { claims, trimmed, left }
