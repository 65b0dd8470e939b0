-- Take deliveries off a reliable list, publish what their attempts published, and mark their messages as
-- handled: check the owner, look for every refusal, write, then remove.
--
-- KEYS  1 processing list (self), 2 starts (hash), 3 recovery set, if there is one; then the sets of marks
--       (the one to add to is the first), then the keys that are written
-- ARGV  1 instance (self), 2 how many keys are before the sets of marks, 3 how many sets, 4 how many marks
--       they may hold, 5 how long a new set lives, ms; then per delivery: its entry on the processing list
--       (token .. value), its mark ('' = none), its writes
-- reply one word per delivery: done | marked (handled before: removed, nothing is written) | unmarked
--       (done; no room for its mark) | gone | stolen (taken over) | -<why it is refused>
--
-- Atomicity: every cause of a refusal is found before the first write, for each delivery apart.
-- A repeat finds nothing on the processing list: gone, and nothing is written twice.
local out = {}
local own, sets = tonumber(ARGV[2]), tonumber(ARGV[3])
local recovery = own == 3 and KEYS[3]
local may = redis.acl_check_cmd('LREM', KEYS[1], '-1', '')
local at = 6
while at <= #ARGV do
  local entry, mark = ARGV[at], ARGV[at + 1]
  local token, all = string.sub(entry, 1, 16), nil
  all, at = writes(at + 2)
  local word
  if not redis.call('LPOS', KEYS[1], entry, 'RANK', -1) then
    word = redis.call('HGET', KEYS[2], token) == 'taken' and 'stolen' or 'gone'
  elseif not may then
    word = '-NOPERM this user has no permission to run lrem'
  else
    word = settle_marked(own + 1, sets, mark, all, tonumber(ARGV[4]), ARGV[5])
    if string.sub(word, 1, 1) ~= '-' then
      redis.call('LREM', KEYS[1], -1, entry)
      redis.call('HDEL', KEYS[2], token)
      if recovery then
        redis.call('ZREM', recovery, ARGV[1] .. token)
      end
    end
  end
  out[#out + 1] = word
end
return out
