-- Make a deleted group again, with its stream if that is gone too, and mark a group without a mark.
--
-- KEYS  1 stream, 2 parked deliveries (sorted set: id -> due)
-- ARGV  1 group, 2 the last id that this host saw, 3 the name of a new mark, 4 how marks begin,
--       5 consumer that says that not all parked deliveries are pending
-- reply { 'intact' | 'group' | 'stream', the mark of the group }
--
-- If the stream is still there, the group goes on behind the last id that this host saw. If the stream is
-- younger than that id, somebody deleted it and wrote it anew: everything in it is unread.
-- A mark is a consumer that holds nothing. In a group without one (it is new, or somebody else made it)
-- parked deliveries may be missing: another consumer says so, until `park_again` has looked at each.
-- It adds a few bytes for each group, and runs out of memory as well: nothing settles before.
-- Atomicity: a group that this makes is marked before anybody reads from it. A repeat finds the group
-- and its mark.
local function mark(name)
  redis.call('XREADGROUP', 'GROUP', ARGV[1], name, 'NOACK', 'COUNT', 1, 'STREAMS', KEYS[1], '0')
end

local function is_there()
  for _, info in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    if named(info)['name'] == ARGV[1] then
      return true
    end
  end
end

local made = 'intact'
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')
  made = 'stream'
elseif not is_there() then
  local start = ARGV[2]
  if less(named(redis.call('XINFO', 'STREAM', KEYS[1]))['last-generated-id'], start) then
    start = '0-0'
  end
  redis.call('XGROUP', 'CREATE', KEYS[1], ARGV[1], start)
  made = 'group'
end
for _, info in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local name = named(info)['name']
  if name:sub(1, #ARGV[4]) == ARGV[4] then
    return { made, name }
  end
end
if redis.call('ZRANGE', KEYS[2], 0, 0)[1] then
  mark(ARGV[5])
end
mark(ARGV[3])
return { made, ARGV[3] }
