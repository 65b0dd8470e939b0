-- Claim deliveries that other consumers have not renewed for too long. The count stays.
--
-- KEYS  1 stream, 2 terms of the hosts, 3 late acknowledgements (sorted set: id -> when), 4 parked deliveries (sorted
--       set: id -> due)
-- ARGV  1 group, 2 consumer (self), 3 mark of the group, 4 idle time that makes an orphan, ms (the largest holds), 5 at
--       most how many, 6 after how many bytes of fields to stop, 7 after how long the record of a claim comes up again,
--       ms, 8 for how long it is noted whose they were, ms, 9 at most how many notes there are; then the consumers to
--       look at, in order
-- reply { claims, trimmed }
--
-- Atomicity: listed and claimed in one go, so that no charge is lost between reading a count and
-- writing it. Only the first commands can fail (no group, wrong type).
-- A repeat finds the deliveries of an earlier call owned by this host.
local room, limit = tonumber(ARGV[5]), tonumber(ARGV[6])
local least = text((agreed(KEYS[2], ARGV[4])))
for i = 10, #ARGV do
  if #claims >= room or bytes >= limit then
    break
  end
  local list = redis.call('XPENDING', KEYS[1], ARGV[1], 'IDLE', least, '-', '+', room - #claims, ARGV[i])
  for _, held in ipairs(list) do
    if bytes >= limit then
      break
    end
    local before = #claims
    claim({ held }, limit)
    if #claims > before then
      note_taken(KEYS[3], held, ARGV[i], ARGV[8], ARGV[9])
    end
  end
end
forget_taken(KEYS[3])
keep_records(KEYS[4], ARGV[7], 'XX')
return { claims, trimmed }
