-- Claim delayed values of a reliable list that are due.
--
-- KEYS  1 delayed (sorted set: token .. value -> due, epoch ms by this server's clock),
--       2 processing list (self), 3 instances, 4 retry list, 5 recovery set, if there is one
-- ARGV  1 instance (self), 2 first 8 bytes of tokens, 3 number of the first token, 4 at most how
--       many, 5 after how many bytes of values to stop, 6 time to live of the recovery set, ms
--       (0 = none), 7 whether starts are limited (1 or 0)
-- reply { 1 if this instance was unknown, or others evicted it, else 0; claims, ms until the next
--       is due (-1 = none), where starts are limited: of each claim when its start was reserved for (0 = it was not) }, each
--       claim as its entry: token .. value
--
-- Atomicity: a claimed value is on the processing list before it leaves the sorted set.
-- A repeat claims others: the values of an earlier call are found on the processing list.
local claims, bytes, number = {}, 0, tonumber(ARGV[3])
local unknown, reserved = 0, {}
-- A user that may copy but not remove would claim the same values for ever.
if not redis.acl_check_cmd('ZREM', KEYS[1], '') then
  return redis.error_reply('NOPERM this user has no permission to run zrem')
end
while #claims < tonumber(ARGV[4]) and bytes < tonumber(ARGV[5]) do
  local member = due(KEYS[1], 1)[1]
  if not member then
    break
  end
  if #claims == 0 then
    local seen = redis.call('ZSCORE', KEYS[3], ARGV[1])
    unknown = (not seen or tonumber(seen) == 0) and 1 or 0
    redis.call('ZADD', KEYS[3], text(now), ARGV[1])
  end
  local token = ARGV[2] .. struct.pack('>I8', number)
  local value = string.sub(member, 17)
  number = number + 1
  bytes = bytes + #value
  if ARGV[7] == '1' then
    local score = tonumber(redis.call('ZSCORE', KEYS[1], member))
    reserved[#reserved + 1] = score % 1 > 0 and math.floor(score) or 0
  end
  if KEYS[5] then
    redis.call('ZADD', KEYS[5], text(now), ARGV[1] .. token)
  end
  claims[#claims + 1] = token .. value
  redis.call('LPUSH', KEYS[2], claims[#claims])
  redis.call('ZREM', KEYS[1], member)
end
if KEYS[5] and #claims > 0 and ARGV[6] ~= '0' then
  redis.call('PEXPIRE', KEYS[5], ARGV[6])
end
if #claims == 0 then
  -- A retry list of another type is passed over where values are claimed: this command reports
  -- it.
  redis.call('LLEN', KEYS[4])
end
return { unknown, claims, wait(KEYS[1]), reserved }
