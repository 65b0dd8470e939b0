-- Whether this host owns a delivery with this count: before a copy in another slot.
--
-- KEYS  1 stream
-- ARGV  1 group, 2 consumer (self), 3 mark of the group, 4 id, 5 count it must have,
--       6 '1': a transaction writes the copy
-- reply done (it does) | gone | stolen
--
-- Atomicity: reads only. A repeat asks again.
-- A user that may copy but not acknowledge would leave one copy for every try.
if not redis.acl_check_cmd('XACK', KEYS[1], ARGV[1], ARGV[4]) then
  return redis.error_reply('NOPERM this user has no permission to run xack')
end
-- Without a transaction, a connection that breaks behind the copy would leave one for every try.
if ARGV[6] == '1' and not (redis.acl_check_cmd('MULTI') and redis.acl_check_cmd('EXEC')) then
  return redis.error_reply('NOPERM this user has no permission to run multi and exec, and only they can '
    .. 'dead-letter a message with this number of fields')
end
return obstacle(ARGV[4], ARGV[5]) or 'done'
