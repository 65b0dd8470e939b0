-- Move one dead letter of a list to a list: copy, then remove.
--
-- KEYS  1 dead-letter queue (list), 2 queue (list), 3 the record of a move in steps (hash)
-- ARGV  1 the dead letter's value, 2 the copy
-- reply done | gone | moving (somebody has begun to move one of this value in steps)
--
-- Atomicity: the copy is the first write. Where it fails (wrong type, out of memory), the dead
-- letter is as it was; behind it stands only LREM, which cannot fail anymore.
-- A repeat finds nothing to move: gone, and no second copy. Of equal values the oldest goes.
if not redis.call('LPOS', KEYS[1], ARGV[1], 'RANK', -1) then
  return 'gone'
end
if redis.call('EXISTS', KEYS[3]) == 1 then
  return 'moving'
end
-- A user that may copy but not remove would leave one copy for every try.
if not redis.acl_check_cmd('LREM', KEYS[1], '-1', '') then
  return redis.error_reply('NOPERM this user has no permission to run lrem')
end
redis.call('LPUSH', KEYS[2], ARGV[2])
redis.call('LREM', KEYS[1], -1, ARGV[1])
return 'done'
