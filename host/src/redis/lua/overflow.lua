-- Claim the oldest unread entries over a length: they are dead-lettered or discarded.
--
-- KEYS  1 stream
-- ARGV  1 group, 2 consumer (self), 3 how many may be unread, 4 at most how many to claim (0 = only
--       count), 5 after how many bytes of fields to stop, 6 how many entries to count where Redis
--       does not know how many are unread
-- reply { entries claimed, unread entries over the length that are left }, each entry
--       { id, fields }
--
-- Atomicity: counted and claimed in one go, so that several hosts together never claim more than is
-- over. Only the first command can fail (no stream, wrong type).
-- A repeat counts again: the entries of an earlier call are owned by this host, and no longer unread.
local most = tonumber(ARGV[3])
local length = redis.call('XLEN', KEYS[1])
if length <= most then
  return { {}, 0 }
end
local lag, last
for _, info in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local group = named(info)
  if group['name'] == ARGV[1] then
    lag, last = group['lag'], group['last-delivered-id']
  end
end
if not last then
  return redis.error_reply('NOGROUP the group does not exist')
end
local unread
if lag then
  -- The lag counts trimmed entries. They are the oldest: then all that are left are unread.
  unread = math.min(lag, length)
elseif most < tonumber(ARGV[6]) then
  unread = #behind(last, ARGV[6])
else
  return { {}, 0 }
end
local excess = unread - most
local claimed, bytes = {}, 0
while #claimed < math.min(excess, tonumber(ARGV[4])) and bytes < tonumber(ARGV[5]) do
  local count = math.min(excess - #claimed, tonumber(ARGV[4]) - #claimed, 16)
  local read = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', count,
    'STREAMS', KEYS[1], '>')
  if not read or #read == 0 then
    break
  end
  for _, entry in ipairs(read[1][2]) do
    claimed[#claimed + 1] = entry
    for _, part in ipairs(entry[2]) do
      bytes = bytes + #part
    end
  end
end
return { claimed, math.max(0, excess - #claimed) }
