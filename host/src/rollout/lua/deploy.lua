-- Store an uploaded component as the next version of a queue's handler, and want it.
--
-- KEYS  1 versions (hash), 2 upload (string)
-- ARGV  1 token of this deploy, 2 bytes that were uploaded, 3 digest, 4 who, 5 beginning of the
--       key of a version, 6 how many versions are kept
-- reply number of the version | gone
--
-- It reads, writes and deletes keys of versions and of verdicts that are not among KEYS: all are in the
-- slot of KEYS[1]. The requested version, the one before, and the one that hosts kept last stay.
-- Atomicity: a version is there with all its bytes, or not at all; the look at the length comes
-- before the first write. A repeat finds its own token, and answers as before.
if redis.call('HGET', KEYS[1], 'token') == ARGV[1] then
  return tonumber(redis.call('HGET', KEYS[1], 'wanted'))
end
if redis.call('STRLEN', KEYS[2]) ~= tonumber(ARGV[2]) then
  return 'gone'
end
local number = redis.call('HINCRBY', KEYS[1], 'last', 1)
local before = redis.call('HGET', KEYS[1], 'wanted') or '0'
redis.call('RENAME', KEYS[2], ARGV[5] .. number)
redis.call('PERSIST', ARGV[5] .. number)
redis.call('HSET', KEYS[1], 'v:' .. number, ARGV[3] .. ' ' .. ARGV[2] .. ' ' .. text(now) .. ' ' .. ARGV[4],
  'wanted', number, 'before', before, 'action', 'deploy', 'at', text(now), 'by', ARGV[4], 'token', ARGV[1])
redis.call('HINCRBY', KEYS[1], 'serial', 1)
local kept = string.match(redis.call('GETRANGE', ARGV[5] .. 'kept', 0, 20), '^%d+')
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  local old = string.match(field, '^v:(%d+)$')
  if old and tonumber(old) <= number - tonumber(ARGV[6]) and old ~= before and old ~= kept then
    redis.call('HDEL', KEYS[1], field)
    local key = ARGV[5] .. old
    redis.call('UNLINK', key, key .. ':kept', key .. ':given-up')
  end
end
return number
