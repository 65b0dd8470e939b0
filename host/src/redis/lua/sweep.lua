-- Claim parked deliveries that no due time is known for: they are due now.
--
-- KEYS  1 stream, 2 parked deliveries (sorted set: id -> due)
-- ARGV  1 group, 2 consumer (self), 3 consumer of parked deliveries, 4 where to begin
--       ('-' or '(' .. id), 5 how many to look at, 6 at most how many to claim,
--       7 after how many bytes of fields to stop
-- reply { claims, trimmed, where to go on }, each claim { id, count, idle ms, fields }
--
-- Atomicity: reads that can fail come first; claiming is the only write.
-- A repeat finds what an earlier call claimed owned by this host.
local page = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[4], '+', ARGV[5], ARGV[3])
local claims, trimmed, bytes = {}, 0, 0
local room, limit = tonumber(ARGV[6]), tonumber(ARGV[7])
local next = #page == tonumber(ARGV[5]) and '(' .. page[#page][1] or '-'
for _, held in ipairs(page) do
  if not redis.call('ZSCORE', KEYS[2], held[1]) then
    if #claims >= room or bytes >= limit then
      -- Go on here, this one included.
      return { claims, trimmed, held[1] }
    end
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
return { claims, trimmed, next }
