-- Take deliveries off a reliable list, publish and write what their attempts published and wrote, and mark
-- their messages as handled: check the owner, look for every refusal, write, then remove.
--
-- KEYS  1 processing list (self), 2 starts (hash), 3 how many writes of a delivery are done (sorted set),
--       4 recovery set, if there is one; then the sets of marks (the one to add to is the first), then the keys
--       that are written, or were read
-- ARGV  1 instance (self), 2 how many keys are before the sets of marks, 3 how many sets, 4 how many marks
--       they may hold, 5 how long a new set lives, ms, 6 journals (see `journals`; '' = none); then per delivery:
--       its entry on the processing list (token .. value; or, of a large one, its token), with journals the name of its
--       journal, its mark ('' = none), its writes and the values that it
--       has read
-- reply one word per delivery: done | marked (handled before: removed, nothing is written) | unmarked
--       (done; no room for its mark) | changed (a value that it has read is another one: nothing is written)
--       | gone | stolen (taken over) | -<why it is refused>; `-UNFIT` = a key has another type than its
--       write needs
--
-- Atomicity: every known cause of a refusal is found before the first write, for each delivery apart. A refusal
-- behind that is noted: the next try goes on there.
-- A repeat finds nothing on the processing list: gone, and nothing is written twice.
local own, sets = tonumber(ARGV[2]), tonumber(ARGV[3])
local recovery = own == 4 and KEYS[4]
local may = redis.acl_check_cmd('LREM', KEYS[1], '-1', '') and redis.acl_check_cmd('HDEL', KEYS[2], '')
  and (not recovery or redis.acl_check_cmd('ZREM', recovery, ''))
local names, marks, effects = {}, {}, {}
local at, journals = 7, {}
while at <= #ARGV do
  local i = #names + 1
  names[i] = ARGV[at]
  if ARGV[6] ~= '' then
    at, journals[i] = at + 1, ARGV[at + 1]
  end
  marks[i] = ARGV[at + 1]
  effects[i], at = writes(at + 2)
end
local entry_of = find(KEYS[1], names)
local begun = redis.call('ZCARD', KEYS[3]) > 0
local out = {}
for i, name in ipairs(names) do
  local token, entry = string.sub(name, 1, 16), entry_of(name)
  local word
  if not entry then
    word = redis.call('HGET', KEYS[2], token) == 'taken' and 'stolen' or 'gone'
  elseif not may then
    word = '-NOPERM this user has no permission to run lrem, hdel or zrem'
  else
    word = settle_marked(own + 1, sets, marks[i], effects[i], tonumber(ARGV[4]), ARGV[5], KEYS[3], token, begun)
    if word ~= 'changed' and string.sub(word, 1, 1) ~= '-' then
      redis.call('LREM', KEYS[1], '-1', entry)
      if word ~= 'marked' then
        tell(effects[i].answer)
      end
      redis.call('HDEL', KEYS[2], token)
      forget_journal(ARGV[6], '', journals[i])
      if recovery then
        redis.call('ZREM', recovery, ARGV[1] .. token)
      end
    end
  end
  out[#out + 1] = word
end
return out
