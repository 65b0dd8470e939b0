-- Append messages to a stream that were published for later, and are due.
--
-- KEYS  1 stream, 2 delayed (sorted set: token .. fields -> due, epoch ms by this server's clock)
-- ARGV  1 at most how many, 2 after how many bytes to stop, 3 field of the body
-- reply { appended, ms until the next is due (-1 = none) }
--
-- The fields are their number, and each name and value behind its length, all big-endian in 32 bits.
-- A member of another form becomes an entry with that member as its body: so it blocks nothing.
-- Atomicity: each is an entry before it leaves the sorted set; where appending fails (wrong type),
-- it has not left. The memory in use stays the same, so it runs out of memory as well.
-- A repeat appends others.
local MOST = 1000

local function fields(member)
  local count, at = struct.unpack('>I4', member, 17)
  if count == 0 or count > MOST then
    return nil
  end
  local out = {}
  for i = 1, 2 * count do
    out[i], at = struct.unpack('>I4c0', member, at)
  end
  return at == #member + 1 and out or nil
end

-- A user that may append but not remove would append the same for ever.
if not redis.acl_check_cmd('ZREM', KEYS[2], '') then
  return redis.error_reply('NOPERM this user has no permission to run zrem')
end
local appended, bytes = 0, 0
while appended < tonumber(ARGV[1]) and bytes < tonumber(ARGV[2]) do
  local member = due(KEYS[2], 1)[1]
  if not member then
    break
  end
  local ok, entry = pcall(fields, member)
  if not ok or not entry then
    entry = { ARGV[3], member }
  end
  redis.call('XADD', KEYS[1], '*', unpack(entry))
  redis.call('ZREM', KEYS[2], member)
  appended = appended + 1
  bytes = bytes + #member
end
return { appended, wait(KEYS[2]) }
