-- Remove old journals of a list, while no message is there.
--
-- KEYS  1 the list, 2 retry list, 3 delayed values (sorted set), 4 instances (sorted set), 5 journals (sorted set, see
--       `journals`)
-- ARGV  1 beginning of the key of a processing list, 2 how old they are, ms, 3 at most how many
-- reply { how many are removed, how many were looked at }
--
-- Nothing tells which messages the values of a list are, but their headers: so journals stay while there are any.
-- It reads processing lists that are not among KEYS: all are in the slot of KEYS[1].
-- Atomicity: nothing can come between the look and the removal. A repeat removes others.
if redis.call('LLEN', KEYS[1]) + redis.call('LLEN', KEYS[2]) + redis.call('ZCARD', KEYS[3]) > 0 then
  return { 0, 0 }
end
for _, name in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do
  if redis.call('LLEN', ARGV[1] .. name) > 0 then
    return { 0, 0 }
  end
end
local old = redis.call('ZRANGEBYSCORE', KEYS[5], 0, text(now - ARGV[2]), 'LIMIT', 0, ARGV[3])
for _, id in ipairs(old) do
  forget_journal(KEYS[5], '', id)
end
return { #old, #old }
