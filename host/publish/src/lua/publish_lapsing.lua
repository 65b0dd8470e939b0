-- Push a message to a list with a time to live, which begins again with each message.
--
-- KEYS  1 list
-- ARGV  1 time to live of the list from now, ms, 2 value
-- reply the length of the list with it
--
-- Atomicity: no list is left without its time to live. A repeat pushes again.
-- The message of a user that may push but not expire would stay for ever.
if not redis.acl_check_cmd('PEXPIRE', KEYS[1], '1') then
  return redis.error_reply('NOPERM this user has no permission to run pexpire')
end
local length = redis.call('LPUSH', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return length
