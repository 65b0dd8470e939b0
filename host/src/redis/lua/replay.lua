-- Move one dead letter to a queue: copy, then remove.
--
-- KEYS  1 dead-letter queue (stream), 2 queue (stream), 3 the record of a move in steps (hash)
-- ARGV  1 id, 2... the copy: field, value, ...
-- reply done | gone | moving (somebody has begun to move it in steps)
--
-- Atomicity: the copy is the first write. Where it fails (wrong type, out of memory), the dead
-- letter is as it was; behind it stands only XDEL, which cannot fail anymore.
-- A repeat finds nothing to move: gone, and no second copy.
if #redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1]) == 0 then
  return 'gone'
end
if redis.call('EXISTS', KEYS[3]) == 1 then
  return 'moving'
end
-- A user that may copy but not remove would leave one copy for every try.
if not redis.acl_check_cmd('XDEL', KEYS[1], ARGV[1]) then
  return redis.error_reply('NOPERM this user has no permission to run xdel')
end
redis.call('XADD', KEYS[2], '*', unpack(ARGV, 2))
redis.call('XDEL', KEYS[1], ARGV[1])
return 'done'
