-- Push a message to a list that lapses whole if nothing follows.
--
-- KEYS  1 list
-- ARGV  1 time to live of the list from now, ms, 2 value
-- reply the length of the list with it
--
-- Atomicity: no list is left without its time to live. A repeat pushes again.
-- A user that may push but not expire would leave the message for ever.
if not redis.acl_check_cmd('PEXPIRE', KEYS[1], '1') then
  return redis.error_reply('NOPERM this user has no permission to run pexpire')
end
local length = redis.call('LPUSH', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return length
