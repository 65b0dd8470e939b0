-- Part: refuse a call that this host has repeated since, however late the call arrives. The host may
-- own the same delivery again, with the same count, and would not notice that it loses it.
-- KEYS[2] holds the fences (sorted set: consumer -> number of a call), ARGV[2] is the consumer, and
-- ARGV[4] the number of this call.
local fence = redis.call('ZSCORE', KEYS[2], ARGV[2])
if fence and tonumber(ARGV[4]) < tonumber(fence) then
  return redis.error_reply('VOID this call was repeated since')
end
