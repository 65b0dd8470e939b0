-- Move deliveries to the dead-letter queue: check the owner, copy, then remove.
--
-- KEYS  1 stream, 2 dead-letter queue (stream)
-- ARGV  1 group, 2 consumer (self), 3 mark of the group, 4 most entries in the dead-letter queue (0 = no
--       bound), 5 'drop-oldest' | 'stop' at that bound; then what the copies have in common: how many parts
--       (field, value, ...), and these; how many of them differ, and their places, from 1; how many are taken from the
--       entry, and for each its place in the copy and in the entry; then per delivery, in the order of their ids:
--       id, count it must have, the parts that differ
-- reply { one word per delivery: done | gone | stolen | full | absent (the entry with these parts is
--       gone) | -<why it is refused>, entries dropped from the dead-letter queue }
--
-- Atomicity: who owns what is asked for all deliveries before the first write. Each copy is written before its
-- delivery goes: where the first one fails (wrong type, out of memory), nothing is written; where a later one
-- fails, that delivery stays. Behind the copies stands only XACK, which cannot fail anymore.
-- A repeat finds nothing pending: gone, and no second copy.
local at = 6
-- The next arguments: how many, and these.
local function list(each)
  local first, last = at + 1, at + (each or 1) * tonumber(ARGV[at])
  at = last + 1
  return { unpack(ARGV, first, last) }
end
local function numbers(each)
  local all = list(each)
  for i = 1, #all do
    all[i] = tonumber(all[i])
  end
  return all
end
local copy, differing, taken = list(), numbers(), numbers(2)
local parts, differs, step = #copy, #differing, 2 + #differing
local ids, counts = arguments(at, step), arguments(at + 1, step)
local words = obstacles(ids, counts)
-- A user that may copy but not acknowledge would leave one copy for every try.
if not redis.acl_check_cmd('XACK', KEYS[1], ARGV[1], ids[1]) then
  return redis.error_reply('NOPERM this user has no permission to run xack')
end
local most = tonumber(ARGV[4])
local stops, trims = most > 0 and ARGV[5] == 'stop', most > 0 and ARGV[5] ~= 'stop'
local before = most > 0 and redis.call('XLEN', KEYS[2])
local done = {}
-- Makes the copy of a delivery. Returns false if a part of it was in the entry, and this is gone.
local function make(i)
  local start = at + (i - 1) * step + 1
  for j = 1, differs do
    copy[differing[j]] = ARGV[start + j]
  end
  if #taken > 0 then
    local entry = redis.call('XRANGE', KEYS[1], ids[i], ids[i])[1]
    for j = 1, entry and #taken or 0, 2 do
      copy[taken[j]] = entry[2][taken[j + 1]]
    end
    return entry
  end
  return true
end
local function write()
  if trims then
    return redis.pcall('XADD', KEYS[2], 'MAXLEN', '~', ARGV[4], '*', unpack(copy, 1, parts))
  end
  return redis.pcall('XADD', KEYS[2], '*', unpack(copy, 1, parts))
end
for i, id in ipairs(ids) do
  if words[i] then
    -- It is not written.
  elseif stops and before + #done >= most then
    words[i] = 'full'
  elseif not make(i) then
    words[i] = 'absent'
  else
    local reply = write()
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
