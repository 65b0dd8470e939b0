-- Part: the answer to a producer that waits, in one argument: the key of its inbox, how long that is kept (ms), since when
-- entries in it are kept (epoch ms), then fields and values; before each, its length in 32 bits. '' = no answer.
-- The inbox is not among KEYS: it is in the slot of the queue. The message is settled whatever becomes of the answer: where the
-- key has another type, there is none.
local function tell(answer)
  if not answer or answer == '' then
    return
  end
  local parts, at = {}, 1
  while at <= #answer do
    parts[#parts + 1], at = struct.unpack('>I4c0', answer, at)
  end
  local key, keep, since = parts[1], parts[2], parts[3]
  local written = redis.pcall('XADD', key, 'MINID', '=', since, '*', unpack(parts, 4))
  if type(written) == 'string' then
    redis.pcall('PEXPIRE', key, keep)
  end
end
