-- Take deliveries of a group off its stream because an operator wants it, whoever has them.
--
-- KEYS  1 stream, 2 parked deliveries (sorted set: id -> due), 3 late acknowledgements (sorted set: id -> when),
--       4 cancelled deliveries (the same), 5 how many writes of a delivery are done (sorted set), 6 dead-letter queue, if
--       there is one
-- ARGV  1 group, 2 consumer of parked deliveries, 3 for how long a note is kept, ms, 4 at most how many are, 5 journals of
--       the group (see `journals`), 6 most entries in the dead-letter queue (0 = no bound), 7 'drop-oldest' | 'stop' at that bound;
--       then per delivery: id, the answer to its producer (see `answer`), its dead letter (see `bury`)
-- reply one word per delivery: cancelled | running <host> (this host has it, and its attempt is void) | before (it was cancelled
--       before) | late (it is settled, or some of its effects are written) | unread | absent (there is no such entry) | full |
--       -<why it is refused>
--
-- The notes say to the host that has the delivery that it must not bring it back, and that its attempt ends.
-- Atomicity: every refusal comes before the first write of a delivery. Its effects happen before this, or never.
-- A repeat finds the note: before.
if not redis.acl_check_cmd('XACK', KEYS[1], ARGV[1], '0-1') then
  return redis.error_reply('NOPERM this user has no permission to run xack')
end
local words = {}
for i = 8, #ARGV, 3 do
  local id, word = ARGV[i], nil
  local held = redis.call('XPENDING', KEYS[1], ARGV[1], id, id, '1')[1]
  if not held then
    if redis.call('ZSCORE', KEYS[4], id) then
      word = 'before'
    elseif #redis.call('XRANGE', KEYS[1], id, id) == 0 then
      word = 'absent'
    else
      word = less(delivered(), id) and 'unread' or 'late'
    end
  elseif redis.call('ZSCORE', KEYS[5], id) then
    word = 'late'
  else
    word = bury(KEYS[6], ARGV[i + 2], ARGV[6], ARGV[7])
  end
  if not word then
    redis.call('XACK', KEYS[1], ARGV[1], id)
    redis.pcall('ZREM', KEYS[2], id)
    forget_held(KEYS[2], { id })
    forget_journal(ARGV[5], ARGV[1], id)
    tell(ARGV[i + 1])
    if held[2] == ARGV[2] then
      word = 'cancelled'
    else
      word = 'running ' .. held[2]
      note(KEYS[3], id, '', ARGV[4])
    end
    note(KEYS[4], id, ARGV[3], ARGV[4])
  end
  words[#words + 1] = word
end
return words
