-- Part: the entries of the stream KEYS[1] behind an id. Redis refuses an interval that begins behind the
-- greatest id there is: nothing can be there.
local GREATEST = '18446744073709551615-18446744073709551615'
local function behind(id, count)
  if id == GREATEST then
    return {}
  end
  return redis.call('XRANGE', KEYS[1], '(' .. id, '+', 'COUNT', count)
end
