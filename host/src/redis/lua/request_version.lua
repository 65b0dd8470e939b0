-- Go back to another version of a queue's handler, or keep a canary.
--
-- KEYS  1 versions (hash)
-- ARGV  1 token of this request, 2 rollback | promote, 3 who, 4 the version to go back to ('' = the
--       one before)
-- reply number of the version that is wanted now | gone | nothing: nothing was ever deployed
--
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
return tonumber(wanted)
