-- Move deliveries to the dead-letter queue: check the owner, copy, then remove.
--
-- KEYS  1 stream, 2 dead-letter queue (stream), 3 parked deliveries (sorted set: id -> due)
-- ARGV  1 group, 2 consumer (self), 3 mark of the group, 4 journals of the group (see `journals`; '' =
--       none), 5 most entries in the dead-letter queue (0 = no bound), 6 'drop-oldest' | 'stop' at that bound; then copies (see `copies`) in the order of their
--       ids, each with its id, the count it must have, and the answer to its producer (see `answer`)
-- reply { one word per delivery (see `told`): done | gone | stolen | full | absent (the entry with these parts is
--       gone) | -<why it is refused>, entries dropped from the dead-letter queue, about how many more are over its
--       bound }
--
-- A message takes its journal along, in one more field.
-- Atomicity: who owns what is asked for all deliveries before the first write. Each copy is written before its
-- delivery goes: where the first one fails (wrong type, out of memory), nothing is written; where a later one
-- fails, that delivery stays. Behind the copies stand only XACK and ZREM, which cannot fail anymore.
-- A repeat finds nothing pending: gone, and no second copy.
local at, step, copy_of = copies(7, 3)
local ids, counts = arguments(at, step), arguments(at + 1, step)
local words = obstacles(ids, counts)
-- A user that may copy but not acknowledge would leave one copy for every try.
if not redis.acl_check_cmd('XACK', KEYS[1], ARGV[1], ids[1]) then
  return redis.error_reply('NOPERM this user has no permission to run xack')
end
local most = tonumber(ARGV[5])
local stops, trims = most > 0 and ARGV[6] == 'stop', most > 0 and ARGV[6] ~= 'stop'
local before = most > 0 and redis.call('XLEN', KEYS[2])
local done, answers = {}, {}
-- Only the last copy trims the queue: others see it after that. If the last one is not written, the next call trims.
local function write(copy, is_last)
  if trims and is_last then
    return redis.pcall('XADD', KEYS[2], 'MAXLEN', '~', ARGV[5], '*', unpack(copy))
  end
  return redis.pcall('XADD', KEYS[2], '*', unpack(copy))
end
for i, id in ipairs(ids) do
  local is_full = stops and before + #done >= most
  local copy = not words[i] and not is_full and copy_of(at + (i - 1) * step)
  if copy and has_journal(ARGV[4], id) then
    copy = { unpack(copy) }
    copy[#copy + 1] = '_journal'
    copy[#copy + 1] = journal_text(ARGV[4], ARGV[1], id)
  end
  if copy then
    local refusal = note(write(copy, i == #ids), i, id, words, done)
    if refusal then
      return refusal
    end
    answers[#answers + 1] = words[i] == 'done' and ARGV[at + (i - 1) * step + 2] or nil
  elseif not words[i] then
    words[i] = is_full and 'full' or 'absent'
  end
end
local dropped, over = 0, 0
if #done > 0 then
  redis.call('XACK', KEYS[1], ARGV[1], unpack(done))
  redis.pcall('ZREM', KEYS[3], unpack(done))
  forget_held(KEYS[3], done)
  for i, id in ipairs(done) do
    forget_journal(ARGV[4], ARGV[1], id)
    tell(answers[i])
  end
  if trims then
    local length = redis.call('XLEN', KEYS[2])
    dropped, over = before + #done - length, math.max(0, length - most)
  end
end
return { told(words), dropped, over }
