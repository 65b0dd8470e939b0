-- Put deliveries of a reliable list back: at the front, at the back, or with a delay.
--
-- KEYS  1 processing list (self), 2 starts (hash), 3 list, 4 retry list,
--       5 delayed (sorted set: token .. value -> due, epoch ms by this server's clock),
--       6 recovery set, if there is one
-- ARGV  1 instance (self); then per delivery: its entry on the processing list (token .. value;
--       or, of a large one, its token), where: 'front' | 'back' | 'retry-front' | 'retry-back' | delay in ms (with a
--       plus before it: its limits have reserved its start for this time, epoch ms),
--       the value to put back: how many bytes at the end of the entry it ends with, and what is before them
-- reply one word per delivery: done | gone | stolen (another instance has taken it over)
--
-- Atomicity: written where it goes before it leaves the processing list; where that fails (wrong
-- type, no right), it has not left. It only adds the memory of new headers, so it runs out
-- of memory as well.
-- A repeat finds nothing on the processing list: gone; or done where it still waits for its time, and the
-- whole value is known.
-- A user that may copy but not remove would leave one copy for every try.
if not redis.acl_check_cmd('LREM', KEYS[1], '-1', '') then
  return redis.error_reply('NOPERM this user has no permission to run lrem')
end
local out, names = {}, {}
for i = 2, #ARGV, 4 do
  names[#names + 1] = ARGV[i]
end
local entry_of = find(KEYS[1], names)
for i = 2, #ARGV, 4 do
  local name, where = ARGV[i], ARGV[i + 1]
  local token = string.sub(name, 1, 16)
  local delay = tonumber(where)
  local entry = entry_of(name)
  if entry then
    local value = joined(ARGV[i + 3], entry, ARGV[i + 2])
    if where == 'front' then
      redis.call('RPUSH', KEYS[3], value)
    elseif where == 'back' then
      redis.call('LPUSH', KEYS[3], value)
    elseif where == 'retry-front' then
      redis.call('RPUSH', KEYS[4], value)
    elseif where == 'retry-back' then
      redis.call('LPUSH', KEYS[4], value)
    else
      local is_reserved = string.sub(where, 1, 1) == '+'
      local at = is_reserved and text(delay) .. '.5' or text(now + delay)
      redis.call('ZADD', KEYS[5], at, token .. value)
    end
    redis.call('LREM', KEYS[1], '-1', entry)
    redis.call('HDEL', KEYS[2], token)
    if KEYS[6] then
      redis.call('ZREM', KEYS[6], ARGV[1] .. token)
    end
    out[#out + 1] = 'done'
  elseif delay and ARGV[i + 2] == '0' and redis.call('ZSCORE', KEYS[5], token .. ARGV[i + 3]) then
    out[#out + 1] = 'done'
  else
    out[#out + 1] = redis.call('HGET', KEYS[2], token) == 'taken' and 'stolen' or 'gone'
  end
end
return out
