-- Go back to another version of a queue's handler, or keep a canary.
--
-- KEYS  1 versions (hash)
-- ARGV  1 token of this request, 2 rollback | promote, 3 who, 4 the version to go back to ('' = the
--       one before), 5 beginning of the key of a version, 6 for how long the choice is kept, ms
-- reply number of the version that is wanted now | gone | nothing: nothing was ever deployed
--
-- It writes and deletes keys of verdicts that are not among KEYS: all are in the slot of KEYS[1]. The
-- chosen version counts as the one that hosts kept last, and no host has given it up.
-- Atomicity: reads come before the first write. A repeat finds its own token, and answers as before: it
-- does not go back twice.
if redis.call('HEXISTS', KEYS[1], 'last') == 0 then
  return 'nothing'
end
local wanted = redis.call('HGET', KEYS[1], 'wanted') or '0'
if redis.call('HGET', KEYS[1], 'token') == ARGV[1] then
  return tonumber(wanted)
end
local before = redis.call('HGET', KEYS[1], 'before') or '0'
if ARGV[2] == 'rollback' then
  local target = ARGV[4] ~= '' and ARGV[4] or before
  if target ~= '0' and redis.call('HEXISTS', KEYS[1], 'v:' .. target) == 0 then
    return 'gone'
  end
  wanted, before = target, wanted
end
redis.call('HSET', KEYS[1], 'wanted', wanted, 'before', before, 'action', ARGV[2], 'at', text(now),
  'by', ARGV[3], 'token', ARGV[1])
redis.call('HINCRBY', KEYS[1], 'serial', 1)
local kept = ARGV[5] .. 'kept'
redis.call('UNLINK', kept)
local digest = string.match(redis.call('HGET', KEYS[1], 'v:' .. wanted) or '', '^%S+')
if digest then
  redis.call('UNLINK', ARGV[5] .. wanted .. ':given-up')
  -- A user who deploys need not have the right to SET.
  redis.call('SETRANGE', kept, 0, wanted .. ' ' .. digest)
  redis.call('PEXPIRE', kept, ARGV[6])
end
return tonumber(wanted)
