-- Write the copy of a dead letter in a two-phase move, once.
--
-- KEYS  1 queue (stream or list), 2 the record of the copy (string)
-- ARGV  1 for how long the record is kept in ms, 2 XADD | LPUSH,
--       3... the copy: field, value, ... | value
-- reply done | before (it was written already) | void (the move goes elsewhere now)
--
-- Atomicity: the copy is the first write. Where it fails (wrong type, out of memory), nothing is
-- changed; behind it stands only SET, which cannot fail anymore.
-- A repeat finds the record: before, and no second copy.
local record = redis.call('GET', KEYS[2])
if record == '1' or record == 'void' then
  return record == '1' and 'before' or 'void'
end
-- A user that may copy but not record it would leave one copy for every try.
if not redis.acl_check_cmd('SET', KEYS[2], '1', 'PX', ARGV[1]) then
  return redis.error_reply('NOPERM this user has no permission to run set')
end
if ARGV[2] == 'XADD' then
  redis.call('XADD', KEYS[1], '*', unpack(ARGV, 3))
else
  redis.call('LPUSH', KEYS[1], ARGV[3])
end
redis.call('SET', KEYS[2], '1', 'PX', ARGV[1])
return 'done'
