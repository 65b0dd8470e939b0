-- Take values of a list off it because an operator wants it, wherever they are; or messages that were published for later.
--
-- KEYS  1 where they are (list, or of delayed messages sorted set), 2 cancelled deliveries (sorted set: token -> when), 3 how many
--       writes of a delivery are done (sorted set), 4 starts of the instance that has them (hash), then the recovery set, if there is
--       one, then the dead-letter queue, if there is one
-- ARGV  1 'list' | 'delayed' | 'held', 2 the instance that has them, 3 place of the recovery set in KEYS (0 = none), 4 place of
--       the dead-letter queue (0 = none), 5 most entries in it (0 = no bound), 6 'drop-oldest' | 'stop' at that bound, 7 for how long a
--       note is kept, ms, 8 at most how many are, 9 journals of the list (see `journals`; '' = none); then per message: its entry
--       there, the name of its journal, the answer to its producer (see `answer`), its dead letter (see `bury`)
-- reply one word per message: cancelled | running (the attempt of the instance is void) | moved (it is not there) | late (some of its
--       effects are written) | full | -<why it is refused>
--
-- The note says to the instance that its attempt ends. It writes journals, which are not among KEYS: all are in the slot.
-- Atomicity: every refusal comes before the first write of a message. Its effects happen before this, or never.
-- A repeat finds it gone, or takes an equal value: after a lost answer, look before you repeat.
local mode = ARGV[1]
local remove = mode == 'delayed' and 'ZREM' or 'LREM'
if not redis.acl_check_cmd(remove, KEYS[1], '-1', '') then
  return redis.error_reply('NOPERM this user has no permission to run ' .. remove)
end
local recovery, dead = KEYS[tonumber(ARGV[3])], KEYS[tonumber(ARGV[4])]
local words = {}
for i = 10, #ARGV, 4 do
  local entry, word = ARGV[i], nil
  local token = string.sub(entry, 1, 16)
  local is_there
  if mode == 'delayed' then
    is_there = redis.call('ZSCORE', KEYS[1], entry)
  else
    is_there = redis.call('LPOS', KEYS[1], entry, 'RANK', '-1')
  end
  if not is_there then
    word = 'moved'
  elseif mode == 'held' and redis.call('ZSCORE', KEYS[3], token) then
    word = 'late'
  else
    word = bury(dead, ARGV[i + 3], ARGV[5], ARGV[6])
  end
  if not word then
    if mode == 'delayed' then
      redis.call('ZREM', KEYS[1], entry)
    else
      redis.call('LREM', KEYS[1], '-1', entry)
    end
    word = 'cancelled'
    if mode == 'held' then
      word = 'running'
      redis.pcall('HDEL', KEYS[4], token)
      if recovery then
        redis.pcall('ZREM', recovery, ARGV[2] .. token)
      end
      note(KEYS[2], token, ARGV[7], ARGV[8])
    end
    forget_journal(ARGV[9], '', ARGV[i + 1])
    tell(ARGV[i + 2])
  end
  words[#words + 1] = word
end
return words
