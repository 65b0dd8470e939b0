-- Renew leases of a reliable list's deliveries, and record starts before the handler runs.
--
-- KEYS  1 processing list (self), 2 starts (hash: token -> starts charged), 3 instances,
--       4 recovery set, if there is one
-- ARGV  1 instance (self), 2 time to live of the recovery set, ms (0 = none); then per delivery:
--       token, starts charged with the one to record ('' = none to record), its entry on the
--       processing list (token .. value; or, of a large one, its token; '' = do not look there)
-- reply { 1 if this instance was unknown, or others evicted it, else 0; one word per delivery:
--       done | unsure (ask again with its entry) | stolen }
--
-- Without its entry, a delivery is known to be held by its record in the recovery set; or, without a
-- record, because no host takes anything from an instance before evicting it.
-- Atomicity: checked and written in one go. It adds little memory, so it runs out of memory as well.
-- A repeat writes the same again.
local seen = redis.call('ZSCORE', KEYS[3], ARGV[1])
local unknown = not seen or tonumber(seen) == 0
redis.call('ZADD', KEYS[3], text(now), ARGV[1])
local out, names = {}, {}
for i = 5, #ARGV, 3 do
  names[#names + 1] = ARGV[i]
end
local entry_of = find(KEYS[1], names)
for i = 3, #ARGV, 3 do
  local token, starts, entry = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local held
  if entry ~= '' then
    held = entry_of(entry)
  elseif KEYS[4] then
    held = redis.call('ZSCORE', KEYS[4], ARGV[1] .. token)
  else
    held = not unknown
  end
  if held then
    if starts ~= '' then
      redis.call('HSET', KEYS[2], token, starts)
    end
    if KEYS[4] then
      redis.call('ZADD', KEYS[4], text(now), ARGV[1] .. token)
    end
    out[#out + 1] = 'done'
  elseif entry == '' then
    out[#out + 1] = 'unsure'
  else
    -- This instance knows now: the mark of the instance that took the delivery goes.
    redis.call('HDEL', KEYS[2], token)
    out[#out + 1] = 'stolen'
  end
end
if KEYS[4] and ARGV[2] ~= '0' then
  redis.call('PEXPIRE', KEYS[4], ARGV[2])
end
return { unknown and 1 or 0, out }
