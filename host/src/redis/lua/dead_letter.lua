-- Move one delivery to the dead-letter queue: check the owner, copy, then remove.
--
-- KEYS  1 stream, 2 dead-letter queue (stream)
-- ARGV  1 group, 2 consumer (self), 3 mark of the group, 4 id, 5 count it must have,
--       6 most entries in the dead-letter queue (0 = no bound), 7 'drop-oldest' | 'stop' at that
--       bound, 8 how many parts of the copy are parts of the entry, and
--       for each: its place in the copy, its place in the entry (both from 1); then the copy: field,
--       value, ... ('' where a part of the entry belongs)
-- reply { done | gone | stolen | full | absent (the entry with these parts is gone), entries dropped
--       from the dead-letter queue }
--
-- Atomicity: the copy is the first write. Where it fails (wrong type, out of memory), the delivery
-- is as it was; behind it stands only XACK, which cannot fail anymore.
-- A repeat finds nothing pending: gone, and no second copy.
local word = obstacle(ARGV[4], ARGV[5])
if word then
  return { word, 0 }
end
-- A user that may copy but not acknowledge would leave one copy for every try.
if not redis.acl_check_cmd('XACK', KEYS[1], ARGV[1], ARGV[4]) then
  return redis.error_reply('NOPERM this user has no permission to run xack')
end
local first = 9 + 2 * tonumber(ARGV[8])
local copy = { unpack(ARGV, first) }
if first > 9 then
  local entry = redis.call('XRANGE', KEYS[1], ARGV[4], ARGV[4])[1]
  if not entry then
    return { 'absent', 0 }
  end
  for i = 9, first - 1, 2 do
    copy[tonumber(ARGV[i])] = entry[2][tonumber(ARGV[i + 1])]
  end
end
local dropped = 0
if ARGV[6] == '0' then
  redis.call('XADD', KEYS[2], '*', unpack(copy))
else
  local length = redis.call('XLEN', KEYS[2])
  if ARGV[7] == 'stop' then
    if length >= tonumber(ARGV[6]) then
      return { 'full', 0 }
    end
    redis.call('XADD', KEYS[2], '*', unpack(copy))
  else
    redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[6], '*', unpack(copy))
    dropped = length + 1 - redis.call('XLEN', KEYS[2])
  end
end
redis.call('XACK', KEYS[1], ARGV[1], ARGV[4])
return { 'done', dropped }
