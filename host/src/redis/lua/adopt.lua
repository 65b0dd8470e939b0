-- Read again deliveries of this host that it does not know: their reply was lost on its way.
-- The count stays.
--
-- KEYS  1 stream
-- ARGV  1 group, 2 consumer (self), 3 idle time they must have, ms,
--       4 after how many bytes of fields to stop; then ids
-- reply { claims, trimmed }, each claim { id, count, idle ms, fields }
--
-- Atomicity: only the first command can fail (no group, wrong type), before anything is written.
-- A repeat finds them too young: the next scan but one has them again.
local claims, trimmed, bytes, limit = {}, 0, 0, tonumber(ARGV[4])
for i = 5, #ARGV do
  if bytes >= limit then
    break
  end
  local held = redis.call('XPENDING', KEYS[1], ARGV[1], 'IDLE', ARGV[3], ARGV[i], ARGV[i], 1, ARGV[2])[1]
  if held then
    local entry = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, held[1], 'RETRYCOUNT', held[4])[1]
    if entry then
      claims[#claims + 1] = { held[1], held[4], held[3], entry[2] }
      for _, part in ipairs(entry[2]) do
        bytes = bytes + #part
      end
    else
      trimmed = trimmed + 1
    end
  end
end
return { claims, trimmed }
