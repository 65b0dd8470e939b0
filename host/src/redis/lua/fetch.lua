-- Claim unread entries.
--
-- KEYS  1 stream, 2 parked deliveries (sorted set: id -> due, epoch ms by this server's clock)
-- ARGV  1 group, 2 consumer (self), 3 consumer of parked deliveries, 4 at most how many, 5 after how
--       many bytes of fields to stop
-- reply an array. A string in it packs several entries (MessagePack, { id, names and values } each), which
--       costs less than an array for each; an array is one entry, not packed: a large one is copied less
--
-- How large an entry is shows only when it is read. Small ones are read several at once; what is far
-- beyond the bytes then goes back: parked, due now, and without a start.
-- Atomicity: only the first command can fail (no group, wrong type), before anything is written. An entry
-- that cannot be parked is kept.
-- A repeat claims others: the entries of an earlier call are owned by this host.
-- Without this, the error would not name the right.
if not redis.acl_check_cmd('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'STREAMS', KEYS[1], '>') then
  return redis.error_reply('NOPERM this user has no permission to run xreadgroup')
end
local function size_of(entry)
  local size, parts = 0, entry[2]
  for part = 1, #parts do
    size = size + #parts[part]
  end
  return size
end
local packed_max, most_at_once = 65536, 128
local room, limit = tonumber(ARGV[4]), tonumber(ARGV[5])
local out, claimed, bytes, count = {}, 0, 0, 1
while claimed < room and bytes < limit do
  local read = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT',
    math.min(count, room - claimed), 'STREAMS', KEYS[1], '>')
  if not read or #read == 0 then
    break
  end
  local entries = read[1][2]
  -- A run of large entries shows at its end: it is not packed.
  local packed = #entries > 1 and size_of(entries[#entries]) <= packed_max / #entries * 8
    and cmsgpack.pack(entries)
  -- An id, and what packs an entry, take about 20 bytes.
  local size = packed and math.max(0, #packed - 20 * #entries)
  if packed and #packed <= packed_max and bytes + size <= limit then
    out[#out + 1] = packed
    claimed, bytes = claimed + #entries, bytes + size
  else
    for i = 1, #entries do
      local id, size = entries[i][1], size_of(entries[i])
      local back = bytes >= limit and bytes + size > 2 * limit
        and type(redis.pcall('ZADD', KEYS[2], text(now), id)) == 'number'
      if back then
        redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[3], 0, id, 'RETRYCOUNT', 0, 'JUSTID')
      else
        out[#out + 1] = entries[i]
        claimed, bytes = claimed + 1, bytes + size
      end
    end
  end
  -- As many as were read before, if they were small.
  count = next_step(math.min(limit, 7 * packed_max), claimed, bytes,
    math.min(most_at_once, claimed))
end
return out
