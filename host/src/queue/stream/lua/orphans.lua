-- Claim deliveries that other consumers have not renewed for too long. The count stays.
--
-- KEYS  1 stream, 2 terms of the hosts, 3 parked deliveries (sorted set: id -> due)
-- ARGV  1 group, 2 consumer (self), 3 idle time that makes an orphan, ms (the largest holds), 4 at most how many,
--       5 after how many bytes of fields to stop, 6 after how long the record of a claim comes up again, ms; then
--       the consumers to look at, in order
-- reply { claims, trimmed }
--
-- Atomicity: listed and claimed in one go, so that no charge is lost between reading a count and
-- writing it. Only the first commands can fail (no group, wrong type).
-- A repeat finds the deliveries of an earlier call owned by this host.
local room, limit = tonumber(ARGV[4]), tonumber(ARGV[5])
local least = text((agreed(KEYS[2], ARGV[3])))
for i = 7, #ARGV do
  if #claims >= room or bytes >= limit then
    break
  end
  local list = redis.call('XPENDING', KEYS[1], ARGV[1], 'IDLE', least, '-', '+', room - #claims, ARGV[i])
  for _, held in ipairs(list) do
    if bytes >= limit then
      break
    end
    claim({ held }, limit)
  end
end
keep_records(KEYS[3], ARGV[6], 'XX')
return { claims, trimmed }
