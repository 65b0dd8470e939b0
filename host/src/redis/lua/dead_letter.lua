-- Move deliveries to the dead-letter queue: check the owner, copy, then remove.
--
-- KEYS  1 stream, 2 dead-letter queue (stream)
-- ARGV  1 group, 2 consumer (self), 3 mark of the group, 4 most entries in the dead-letter queue (0 = no
--       bound), 5 'drop-oldest' | 'stop' at that bound; then per delivery, in the order of their ids: id, count it
--       must have, how many parts its copy has (field, value, ...), how many of them follow, and these: all of
--       them; or, for each, its place in the copy (from 1) and itself, and the others are those of the copy
--       before; then how many parts are parts of the entry, and for each its place in the copy and in the entry
-- reply { one word per delivery: done | gone | stolen | full | absent (the entry with these parts is
--       gone) | -<why it is refused>, entries dropped from the dead-letter queue }
--
-- Atomicity: who owns what is asked for all deliveries before the first write. Each copy is written before its
-- delivery goes: where the first one fails (wrong type, out of memory), nothing is written; where a later one
-- fails, that delivery stays. Behind the copies stands only XACK, which cannot fail anymore.
-- A repeat finds nothing pending: gone, and no second copy.
local ids, counts, starts, at = {}, {}, {}, 6
while at <= #ARGV do
  ids[#ids + 1], counts[#counts + 1], starts[#starts + 1] = ARGV[at], ARGV[at + 1], at + 2
  local given = tonumber(ARGV[at + 3])
  at = at + 4 + (ARGV[at + 2] == ARGV[at + 3] and given or 2 * given)
  at = at + 1 + 2 * tonumber(ARGV[at])
end
local words = obstacles(ids, counts)
-- A user that may copy but not acknowledge would leave one copy for every try.
if not redis.acl_check_cmd('XACK', KEYS[1], ARGV[1], ids[1]) then
  return redis.error_reply('NOPERM this user has no permission to run xack')
end
local most = tonumber(ARGV[4])
local stops, trims = most > 0 and ARGV[5] == 'stop', most > 0 and ARGV[5] ~= 'stop'
local before = most > 0 and redis.call('XLEN', KEYS[2])
local copy, done = {}, {}
-- The copy of a delivery; nil if a part of it was in the entry, and this is gone.
local function copy_of(i)
  local parts, given, place = tonumber(ARGV[starts[i]]), tonumber(ARGV[starts[i] + 1]), starts[i] + 2
  local step = given == parts and 1 or 2
  for j = 1, given do
    copy[step == 1 and j or tonumber(ARGV[place])] = ARGV[place + step - 1]
    place = place + step
  end
  local shared = tonumber(ARGV[place])
  if shared > 0 and not words[i] then
    local entry = redis.call('XRANGE', KEYS[1], ids[i], ids[i])[1]
    if not entry then
      return nil
    end
    for j = place + 1, place + 2 * shared, 2 do
      copy[tonumber(ARGV[j])] = entry[2][tonumber(ARGV[j + 1])]
    end
  end
  return parts
end
local function write(parts)
  if trims then
    return redis.pcall('XADD', KEYS[2], 'MAXLEN', '~', ARGV[4], '*', unpack(copy, 1, parts))
  end
  return redis.pcall('XADD', KEYS[2], '*', unpack(copy, 1, parts))
end
for i, id in ipairs(ids) do
  local parts = copy_of(i)
  if not words[i] and not parts then
    words[i] = 'absent'
  elseif not words[i] and stops and before + #done >= most then
    words[i] = 'full'
  elseif not words[i] then
    local reply = write(parts)
    if type(reply) == 'table' and reply['err'] then
      if #done == 0 then
        return reply
      end
      words[i] = '-' .. reply['err']
    else
      done[#done + 1], words[i] = id, 'done'
    end
  end
end
local dropped = 0
if #done > 0 then
  redis.call('XACK', KEYS[1], ARGV[1], unpack(done))
  dropped = trims and before + #done - redis.call('XLEN', KEYS[2]) or 0
end
return { words, dropped }
