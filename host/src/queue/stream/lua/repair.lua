-- Make a deleted group again, with its stream if that is gone too, and mark a group without a mark.
--
-- KEYS  1 stream, 2 parked deliveries (sorted set: id -> due)
-- ARGV  1 group, 2 the last id that this host saw, 3 the name of a new mark, 4 how marks begin,
--       5 consumer that says that not all parked deliveries are pending, 6 how many entries had been added at
--       least, as far as this host knows; then of the entry with that last id, if this host knows it: how many
--       parts it has (field, value, ...), how many bytes they have, and the beginning of its last part
-- reply { 'intact' | 'group' | 'stream', the mark of the group, behind which id a group that this made begins
--       ('' = it made none) }
--
-- If the stream is still there, the group goes on behind the last id that this host saw. If the stream is
-- another one, because it was deleted and written anew, everything in it is unread. Producers may choose
-- ids, so ids alone prove nothing: another stream has had fewer entries, or has another entry with that id.
-- A mark is a consumer that holds nothing. In a group without one (it is new, or another client made it)
-- parked deliveries may be missing: another consumer says so, until `park_again` has looked at each.
-- It adds a few bytes for each group, and runs out of memory as well: nothing settles before.
-- Atomicity: a group that this makes is marked before anybody reads from it. A repeat finds the group
-- and its mark.
local function is_there()
  for _, info in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    if named(info)['name'] == ARGV[1] then
      return true
    end
  end
end

-- Whether the stream is not the one that this host has read.
local function is_another()
  local stream = named(redis.call('XINFO', 'STREAM', KEYS[1]))
  if less(stream['last-generated-id'], ARGV[2]) or stream['entries-added'] < tonumber(ARGV[6]) then
    return true
  end
  local entry = ARGV[7] and redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2])[1]
  if not entry then
    return false
  end
  local bytes = 0
  for _, part in ipairs(entry[2]) do
    bytes = bytes + #part
  end
  return #entry[2] ~= tonumber(ARGV[7]) or bytes ~= tonumber(ARGV[8])
    or string.sub(entry[2][#entry[2]], 1, #ARGV[9]) ~= ARGV[9]
end

local made, start = 'intact', ''
if redis.call('EXISTS', KEYS[1]) == 0 then
  made, start = 'stream', '0-0'
  redis.call('XGROUP', 'CREATE', KEYS[1], ARGV[1], start, 'MKSTREAM')
elseif not is_there() then
  made, start = 'group', is_another() and '0-0' or ARGV[2]
  redis.call('XGROUP', 'CREATE', KEYS[1], ARGV[1], start)
end
for _, info in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local name = named(info)['name']
  if name:sub(1, #ARGV[4]) == ARGV[4] then
    return { made, name, start }
  end
end
if redis.call('ZRANGE', KEYS[2], 0, 0)[1] then
  make_consumer(ARGV[5])
end
make_consumer(ARGV[3])
return { made, ARGV[3], start }
