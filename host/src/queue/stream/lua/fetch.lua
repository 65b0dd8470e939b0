-- Claim unread entries, whose sizes are not known.
--
-- KEYS  1 stream, 2 parked deliveries (sorted set: id -> due, epoch ms by this server's clock)
-- ARGV  1 group, 2 consumer (self), 3 consumer of parked deliveries, 4 consumer that says that not all of
--       them are pending, 5 at most how many, 6 after how many bytes of fields to stop
-- reply an array of entries
--
-- How large an entry is shows only when it is read. Small ones are read several at once; entries far
-- beyond the bytes then go back: parked, due now, and without a start.
-- Atomicity: only the first command can fail (no group, wrong type), before anything is written. An entry
-- that cannot be parked is kept.
-- A repeat claims others: the entries of an earlier call are owned by this host.
-- Without this, the error would not name the right.
if not redis.acl_check_cmd('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'STREAMS', KEYS[1], '>') then
  return redis.error_reply('NOPERM this user has no permission to run xreadgroup')
end
local room, limit = tonumber(ARGV[5]), tonumber(ARGV[6])
local out, bytes, count, has_looked = {}, 0, 1, false
while #out < room and bytes < limit do
  local read = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT',
    math.min(count, room - #out), 'STREAMS', KEYS[1], '>')
  if not read or #read == 0 then
    break
  end
  for _, entry in ipairs(read[1][2]) do
    -- A host keeps about 96 bytes for each name and value beside its own bytes.
    local id, size = entry[1], 96 * #entry[2]
    for _, part in ipairs(entry[2]) do
      size = size + #part
    end
    local back = bytes >= limit and bytes + size > 2 * limit
    if back and not has_looked then
      has_looked = true
      look_for_missing(KEYS[2], ARGV[3], ARGV[4])
    end
    back = back and type(redis.pcall('ZADD', KEYS[2], due_time(now, 0), id)) == 'number'
    if back then
      redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[3], 0, id, 'RETRYCOUNT', 0, 'JUSTID')
    else
      out[#out + 1] = entry
      bytes = bytes + size
    end
  end
  count = next_step(limit, #out, bytes)
end
return out
