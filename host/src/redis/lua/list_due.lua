#!lua flags=allow-oom
-- Claim what waited for its time on a reliable list, and is due.
--
-- KEYS  1 delayed (sorted set: token .. value -> due, epoch ms by this server's clock),
--       2 processing list (self), 3 instances, 4 recovery set, if there is one
-- ARGV  1 instance (self), 2 first 8 bytes of tokens, 3 number of the first token, 4 at most how
--       many, 5 after how many bytes of values to stop, 6 time to live of the recovery set, ms
--       (0 = none)
-- reply { 1 if this instance was unknown, or given up by others, else 0; claims, ms until the next
--       is due (-1 = none) }, each claim { token, value }
--
-- Atomicity: what is claimed is on the processing list before it leaves the sorted set.
-- A repeat claims others: what an earlier call claimed is found on the processing list.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local text = string.format('%.0f', now)
local claims, bytes, number = {}, 0, tonumber(ARGV[3])
local unknown = 0
-- A user that may copy but not remove would claim the same values for ever.
if not redis.acl_check_cmd('ZREM', KEYS[1], '') then
  return redis.error_reply('NOPERM this user has no permission to run zrem')
end
while #claims < tonumber(ARGV[4]) and bytes < tonumber(ARGV[5]) do
  local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', text, 'LIMIT', 0, 1)[1]
  if not due then
    break
  end
  if #claims == 0 then
    local seen = redis.call('ZSCORE', KEYS[3], ARGV[1])
    unknown = (not seen or tonumber(seen) == 0) and 1 or 0
    redis.call('ZADD', KEYS[3], text, ARGV[1])
  end
  local token = ARGV[2] .. struct.pack('>I8', number)
  local value = string.sub(due, 17)
  number = number + 1
  bytes = bytes + #value
  if KEYS[4] then
    redis.call('ZADD', KEYS[4], text, ARGV[1] .. token)
  end
  redis.call('LPUSH', KEYS[2], token .. value)
  redis.call('ZREM', KEYS[1], due)
  claims[#claims + 1] = { token, value }
end
if KEYS[4] and #claims > 0 and ARGV[6] ~= '0' then
  redis.call('PEXPIRE', KEYS[4], ARGV[6])
end
local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local wait = -1
if first[2] then
  wait = math.max(0, tonumber(first[2]) - now)
end
return { unknown, claims, wait }
