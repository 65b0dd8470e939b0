-- Take deliveries off a reliable list, and publish what their attempts published: check the owner, look
-- for every refusal, write, then remove.
--
-- KEYS  1 processing list (self), 2 starts (hash), 3 recovery set, if there is one; then the keys that
--       are written
-- ARGV  1 instance (self), 2 how many keys are before those that are written; then per delivery: its
--       entry on the processing list (token .. value), its writes
-- reply one word per delivery: done | gone | stolen (taken over) | -<why it is refused>
--
-- Atomicity: every cause of a refusal is found before the first write, for each delivery apart.
-- A repeat finds nothing on the processing list: gone, and nothing is written twice.
local out = {}
local recovery = ARGV[2] == '3' and KEYS[3]
local may = redis.acl_check_cmd('LREM', KEYS[1], '-1', '')
local at = 3
while at <= #ARGV do
  local entry, all = ARGV[at], nil
  local token = string.sub(entry, 1, 16)
  all, at = writes(at + 1)
  local word
  if not redis.call('LPOS', KEYS[1], entry, 'RANK', -1) then
    word = redis.call('HGET', KEYS[2], token) == 'taken' and 'stolen' or 'gone'
  elseif not may then
    word = '-NOPERM this user has no permission to run lrem'
  end
  word = word or refusal(all) or write_all(all)
  if not word then
    redis.call('LREM', KEYS[1], -1, entry)
    redis.call('HDEL', KEYS[2], token)
    if recovery then
      redis.call('ZREM', recovery, ARGV[1] .. token)
    end
  end
  out[#out + 1] = word or 'done'
end
return out
