-- Claim the oldest unread entries, up to one that is over the length: they are dead-lettered or discarded.
--
-- KEYS  1 stream
-- ARGV  1 group, 2 consumer (self), 3 the last entry that may be claimed, 4 at most how many to claim, 5 after how
--       many bytes of fields to stop
-- reply { entries claimed, 1 if another one may be claimed or 0 }, each entry { id, fields }
--
-- Atomicity: looked and claimed in one go. Hosts that claim together never claim what is behind the last entry.
-- Only the first command can fail (no stream, wrong type).
-- A repeat looks again: the entries of an earlier call are owned by this host, and no longer unread.
local last = delivered()
if not last then
  return redis.error_reply('NOGROUP the group does not exist')
end
local function over(count)
  if not less(last, ARGV[3]) then
    return 0
  end
  return #redis.call('XRANGE', KEYS[1], '(' .. last, ARGV[3], 'COUNT', count)
end
local claimed, bytes = {}, 0
while #claimed < tonumber(ARGV[4]) and bytes < tonumber(ARGV[5]) do
  local count = over(math.min(tonumber(ARGV[4]) - #claimed, 16))
  if count == 0 then
    break
  end
  local read = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', count,
    'STREAMS', KEYS[1], '>')
  for _, entry in ipairs(read[1][2]) do
    claimed[#claimed + 1] = entry
    last = entry[1]
    for _, part in ipairs(entry[2]) do
      bytes = bytes + #part
    end
  end
end
return { claimed, over(1) }
