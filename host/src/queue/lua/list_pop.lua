-- Take values off a simple list: they exist only in the reply.
--
-- KEYS  1 list
-- ARGV  1 at most how many, 2 after how many bytes of values to stop
-- reply values, the oldest first
--
-- Atomicity: what is read and what is removed is the same. It only frees memory, so it runs out of memory
-- as well. A repeat takes others: the values of an earlier call went with its reply.
local room, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
-- A user that may read but not remove would take the same values for ever.
if not redis.acl_check_cmd('LTRIM', KEYS[1], '0', '0') then
  return redis.error_reply('NOPERM this user has no permission to run ltrim')
end
local out, bytes, step = {}, 0, 1
while #out < room and bytes < limit do
  local values = redis.call('LRANGE', KEYS[1], -math.min(step, room - #out), -1)
  if #values == 0 then
    break
  end
  local taken = 0
  for i = #values, 1, -1 do
    if bytes >= limit then
      break
    end
    bytes = bytes + #values[i]
    out[#out + 1] = values[i]
    taken = taken + 1
  end
  redis.call('LTRIM', KEYS[1], 0, -taken - 1)
  step = next_step(limit, #out, bytes)
end
return out
