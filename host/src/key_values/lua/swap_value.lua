-- Set a value of a handler, if the present one is the one that was read. Its time to live stays.
--
-- KEYS  1 the key
-- ARGV  1 the value; then the length and the digest of the one that was read, unless there was none
-- reply done | changed (another value is there) | -<why it is refused>
--
-- Atomicity: everything is asked before the write.
-- A repeat finds the new value: changed.
local kind = redis.call('TYPE', KEYS[1])['ok']
if kind ~= 'none' and kind ~= 'string' then
  return '-WRONGTYPE'
end
if (kind == 'string') ~= (#ARGV > 1) then
  return 'changed'
end
if #ARGV > 1 and (redis.call('STRLEN', KEYS[1]) ~= tonumber(ARGV[2])
  or redis.sha1hex(redis.call('GET', KEYS[1])) ~= ARGV[3]) then
  return 'changed'
end
redis.call('SET', KEYS[1], ARGV[1], 'KEEPTTL')
return 'done'
