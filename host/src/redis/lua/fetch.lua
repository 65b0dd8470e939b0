-- Claim unread entries.
--
-- KEYS  1 stream, 2 parked deliveries (sorted set: id -> due, epoch ms by this server's clock)
-- ARGV  1 group, 2 consumer (self), 3 consumer of parked deliveries, 4 at most how many, 5 after how
--       many bytes of fields to stop
-- reply per entry: id, number of names and values, names and values; all in one array, which costs less than
--       one for each
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
local room, limit = tonumber(ARGV[4]), tonumber(ARGV[5])
local out, last, claimed, bytes, count = {}, 0, 0, 0, 1
while claimed < room and bytes < limit do
  local read = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT',
    math.min(count, room - claimed), 'STREAMS', KEYS[1], '>')
  if not read or #read == 0 then
    break
  end
  local entries = read[1][2]
  for i = 1, #entries do
    local id, parts = entries[i][1], entries[i][2]
    local size = 0
    for part = 1, #parts do
      size = size + #parts[part]
    end
    local back = bytes >= limit and bytes + size > 2 * limit
      and type(redis.pcall('ZADD', KEYS[2], text(now), id)) == 'number'
    if back then
      redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[3], 0, id, 'RETRYCOUNT', 0, 'JUSTID')
    else
      out[last + 1], out[last + 2] = id, #parts
      last = last + 2
      for part = 1, #parts do
        out[last + part] = parts[part]
      end
      last = last + #parts
      claimed, bytes = claimed + 1, bytes + size
    end
  end
  count = next_step(limit, claimed, bytes)
end
return out
