-- Whether this instance of a reliable list holds a delivery: before a copy in another slot.
--
-- KEYS  1 processing list (self), 2 starts (hash)
-- ARGV  1 its entry on the processing list (token .. value; or, of a large one, its token), 2 dead-letter queue (list) that is
--       trimmed ('' = it is not)
-- reply done (it does) | gone | stolen (another instance has taken it over)
--
-- Atomicity: reads only. A repeat asks again.
-- A user that may copy but not remove, or not trim, would leave one copy for every try.
if not redis.acl_check_cmd('LREM', KEYS[1], '-1', '') then
  return redis.error_reply('NOPERM this user has no permission to run lrem')
end
if ARGV[2] ~= '' and not redis.acl_check_cmd('LTRIM', ARGV[2], '0', '0') then
  return redis.error_reply('NOPERM this user has no permission to run ltrim')
end
if find(KEYS[1], { ARGV[1] })(ARGV[1]) then
  return 'done'
end
return redis.call('HGET', KEYS[2], string.sub(ARGV[1], 1, 16)) == 'taken' and 'stolen' or 'gone'
