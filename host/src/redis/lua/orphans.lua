-- Claim deliveries that other consumers have not renewed for too long. The count stays.
--
-- KEYS  1 stream
-- ARGV  1 group, 2 consumer (self), 3 idle time that makes an orphan, ms, 4 at most how many,
--       5 after how many bytes of fields to stop; then the consumers to look at, in order
-- reply { claims, trimmed }
--
-- Atomicity: listed and claimed in one go, so that no charge is lost between reading a count and
-- writing it. Only the first command can fail (no group, wrong type).
-- A repeat finds the deliveries of an earlier call owned by this host.
local room, limit = tonumber(ARGV[4]), tonumber(ARGV[5])
for i = 6, #ARGV do
  if #claims >= room or bytes >= limit then
    break
  end
  local list = redis.call('XPENDING', KEYS[1], ARGV[1], 'IDLE', ARGV[3], '-', '+', room - #claims, ARGV[i])
  for _, held in ipairs(list) do
    if bytes >= limit then
      break
    end
    claim(held)
  end
end
return { claims, trimmed }
