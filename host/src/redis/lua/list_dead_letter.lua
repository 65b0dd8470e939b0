-- Move one delivery of a reliable list to the dead-letter queue: check the owner, copy, then remove.
--
-- KEYS  1 processing list (self), 2 starts (hash), 3 dead-letter queue (list),
--       4 recovery set, if there is one
-- ARGV  1 instance (self), 2 its entry on the processing list (token .. value; or, of a large one,
--       its token), 3 most entries in the
--       dead-letter queue (0 = no bound), 4 'drop-oldest' | 'stop' at that bound, 5 how many bytes at the
--       end of the entry the copy ends with, 6 what is before them
-- reply { done | gone | stolen (taken over) | full, entries dropped from the dead-letter queue }
--
-- Atomicity: the copy is the first write. Where it fails (wrong type, no right), the delivery is as
-- it was. It only adds the memory of the copy's headers, so it runs out of memory as well.
-- A repeat finds nothing on the processing list: gone, and no second copy.
local token = string.sub(ARGV[2], 1, 16)
local entry = find(KEYS[1], { ARGV[2] })(ARGV[2])
if not entry then
  return { redis.call('HGET', KEYS[2], token) == 'taken' and 'stolen' or 'gone', 0 }
end
-- A user that may copy but not remove would leave one copy for every try.
if not redis.acl_check_cmd('LREM', KEYS[1], '-1', '') then
  return redis.error_reply('NOPERM this user has no permission to run lrem')
end
local most, dropped = tonumber(ARGV[3]), 0
if most > 0 and ARGV[4] == 'stop' and redis.call('LLEN', KEYS[3]) >= most then
  return { 'full', 0 }
end
local length = redis.call('LPUSH', KEYS[3], joined(ARGV[6], entry, ARGV[5]))
if most > 0 and length > most then
  redis.call('LTRIM', KEYS[3], 0, most - 1)
  dropped = length - most
end
redis.call('LREM', KEYS[1], -1, entry)
redis.call('HDEL', KEYS[2], token)
if KEYS[4] then
  redis.call('ZREM', KEYS[4], ARGV[1] .. token)
end
return { 'done', dropped }
