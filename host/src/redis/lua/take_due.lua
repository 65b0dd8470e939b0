-- Take back parked deliveries that are due, with the count they kept.
--
-- KEYS  1 stream, 2 parked deliveries (sorted set: id -> due, epoch ms by this server's clock)
-- ARGV  1 group, 2 consumer (self), 3 consumer of parked deliveries, 4 at most how many,
--       5 after how many bytes of fields to stop
-- reply { claims, trimmed, ms until the next is due (-1 = none) }, each claim { id, count, idle ms, fields }
--
-- Atomicity: each is claimed before its record goes; a record without a parked delivery (it was
-- acknowledged late, or taken over) goes as well.
-- A repeat takes others: what an earlier call took is owned by this host, and found as an orphan
-- if its reply was lost.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local claims, trimmed, bytes, limit = {}, 0, 0, tonumber(ARGV[5])
local due = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now), 'LIMIT', 0, ARGV[4])
for _, id in ipairs(due) do
  if bytes >= limit then
    break
  end
  local held = redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1)[1]
  if held and held[2] == ARGV[3] then
    local entry = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, id, 'RETRYCOUNT', held[4])[1]
    if entry then
      claims[#claims + 1] = { id, held[4], held[3], entry[2] }
      for _, part in ipairs(entry[2]) do
        bytes = bytes + #part
      end
    else
      trimmed = trimmed + 1
    end
  end
  redis.call('ZREM', KEYS[2], id)
end
local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
local wait = -1
if first[2] then
  wait = math.max(0, tonumber(first[2]) - now)
end
return { claims, trimmed, wait }
