#!lua flags=allow-oom
-- Append to a stream what was published for later, and is due.
--
-- KEYS  1 stream, 2 delayed (sorted set: token .. fields -> due, epoch ms by this server's clock)
-- ARGV  1 at most how many, 2 after how many bytes to stop, 3 field of the body
-- reply { appended, ms until the next is due (-1 = none) }
--
-- Fields are a number of them, and each name and value behind its length, all big-endian in 32
-- bits. What is nothing like it becomes an entry whose body it is: so it blocks nothing behind it.
-- Atomicity: each is an entry before it leaves the sorted set; where appending fails (wrong type),
-- it has not left. Neutral in memory, so it runs out of memory, too.
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

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local text = string.format('%.0f', now)
local most, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
local appended, bytes = 0, 0
-- A user that may append but not remove would append the same for ever.
if not redis.acl_check_cmd('ZREM', KEYS[2], '') then
  return redis.error_reply('NOPERM this user has no permission to run zrem')
end
while appended < most and bytes < limit do
  local due = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', text, 'LIMIT', 0, 1)[1]
  if not due then
    break
  end
  local ok, entry = pcall(fields, due)
  if not ok or not entry then
    entry = { ARGV[3], due }
  end
  redis.call('XADD', KEYS[1], '*', unpack(entry))
  redis.call('ZREM', KEYS[2], due)
  appended = appended + 1
  bytes = bytes + #due
end
local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
local wait = -1
if first[2] then
  wait = math.max(0, tonumber(first[2]) - now)
end
return { appended, wait }
