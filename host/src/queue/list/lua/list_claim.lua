-- Claim waiting values of a reliable list: each goes to the processing list, behind a token.
--
-- KEYS  1 list, 2 retry list (popped first), 3 processing list (self), 4 instances (sorted set:
--       instance -> last seen, epoch ms by this server's clock), 5 recovery set, if there is one
--       (sorted set: instance .. token -> claimed or renewed, epoch ms)
-- ARGV  1 instance (self), 2 first 8 bytes of tokens for values of the list, 3 the same for values
--       of the retry list, 4 number of the first token, 5 at most how many, 6 after how many bytes
--       of values to stop, 7 time to live of the recovery set, ms (0 = none), 8 how many values
--       the list may hold: only the oldest over that are claimed, none of the retry list ('' = claim
--       all)
-- reply { 1 if this instance was unknown, or others evicted it, else 0; claims; values over that
--       length that are left }, each claim as its entry: token .. value
--
-- Atomicity: a claimed value is recorded and on the processing list before it leaves the list:
-- where that fails (wrong type), nothing has left. The memory in use stays the same, so it runs out of memory as well.
-- A repeat claims others: the values of an earlier call are on the processing list, and found there
-- if its reply was lost.
local seen = redis.call('ZSCORE', KEYS[4], ARGV[1])
local claimed = text(now)
redis.call('ZADD', KEYS[4], claimed, ARGV[1])
-- A user that may copy but not remove would claim the same values for ever.
if not redis.acl_check_cmd('LTRIM', KEYS[1], '0', '0') then
  return redis.error_reply('NOPERM this user has no permission to run ltrim')
end
local number, room, limit = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local claims, bytes = {}, 0
local first, beyond = 2, 0
if ARGV[8] ~= '' then
  first, beyond = 1, math.max(0, redis.call('LLEN', KEYS[1]) - tonumber(ARGV[8]))
  room = math.min(room, beyond)
end
for side = first, 1, -1 do
  local step = 1
  while #claims < room and bytes < limit do
    local values = redis.pcall('LRANGE', KEYS[side], -math.min(step, room - #claims), -1)
    if values.err and side == 1 then
      return values
    end
    -- A retry list of another type does not stop the list: list_due.lua says so.
    if values.err or #values == 0 then
      break
    end
    local entries, records = {}, {}
    for i = #values, 1, -1 do
      if bytes >= limit then
        break
      end
      local token = ARGV[side + 1] .. struct.pack('>I8', number)
      number = number + 1
      bytes = bytes + #values[i]
      entries[#entries + 1] = token .. values[i]
      if KEYS[5] then
        records[#records + 1] = claimed
        records[#records + 1] = ARGV[1] .. token
      end
      claims[#claims + 1] = entries[#entries]
    end
    if KEYS[5] then
      redis.call('ZADD', KEYS[5], unpack(records))
    end
    redis.call('LPUSH', KEYS[3], unpack(entries))
    redis.call('LTRIM', KEYS[side], 0, -#entries - 1)
    step = next_step(limit, #claims, bytes)
  end
end
if KEYS[5] and #claims > 0 and ARGV[7] ~= '0' then
  redis.call('PEXPIRE', KEYS[5], ARGV[7])
end
return { (not seen or tonumber(seen) == 0) and 1 or 0, claims, math.max(0, beyond - #claims) }
