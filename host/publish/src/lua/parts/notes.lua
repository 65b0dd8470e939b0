-- Part, after `time`: what is left of a cancelled message. `bury` writes its dead letter, if a route of the operator wants
-- one: `copy` is one argument, the fields and values of an entry, or a value of a list, before each its length in 32 bits;
-- '' = none. `bound` is the most entries of that queue (0 = no bound), and `full` is 'stop' if nothing goes for it. Returns
-- why it is not written.
local function bury(key, copy, bound, full)
  if copy == '' then
    return nil
  end
  local parts, at = {}, 1
  while at <= #copy do
    parts[#parts + 1], at = struct.unpack('>I4c0', copy, at)
  end
  local is_stream, most = #parts > 1, tonumber(bound)
  local length = most > 0 and redis.pcall(is_stream and 'XLEN' or 'LLEN', key) or 0
  if full == 'stop' and most > 0 and type(length) == 'number' and length >= most then
    return 'full'
  end
  local written
  if is_stream then
    written = most > 0 and redis.pcall('XADD', key, 'MAXLEN', '~', bound, '*', unpack(parts))
      or redis.pcall('XADD', key, '*', unpack(parts))
  else
    written = redis.pcall('LPUSH', key, parts[1])
    if most > 0 and type(written) == 'number' then
      redis.pcall('LTRIM', key, 0, most - 1)
    end
  end
  return type(written) == 'table' and written['err'] and '-' .. written['err'] or nil
end
