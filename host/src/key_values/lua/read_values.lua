-- Read values of a handler.
--
-- KEYS  the keys
-- ARGV  1 the most bytes of a value, 2 the most bytes of all, 3 whether digests are wanted (1, else 0)
-- reply one per key: nil = it has no value | the value, and its digest ('' = not wanted) | a number: its
--       value is too large | -<why it cannot be read>
--
-- Atomicity: reads only, all at the same time. A repeat reads again.
local most, left = tonumber(ARGV[1]), tonumber(ARGV[2])
local out = {}
for i, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key)['ok']
  if kind == 'none' then
    out[i] = false
  elseif kind ~= 'string' then
    out[i] = '-WRONGTYPE'
  else
    local length = redis.call('STRLEN', key)
    if length > math.min(most, left) then
      out[i] = length
    else
      left = left - length
      local value = redis.call('GET', key)
      out[i] = { value, ARGV[3] == '1' and redis.sha1hex(value) or '' }
    end
  end
end
return out
