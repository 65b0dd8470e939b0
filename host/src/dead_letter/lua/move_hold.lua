-- Hold a dead letter for a two-phase move.
--
-- KEYS  1 dead-letter queue (stream or list), 2 the record of the move (hash)
-- ARGV  1 stream | list, 2 id or value, 3 who moves it, 4 a token for a new move, 5 where it goes,
--       6 for how long it is held, 7 for how long the record is kept, both in ms, 8 begin anew: 0 | 1
-- reply { gone } | { moving } | { held, token, where it goes, 1 if the token is of an earlier hold,
--       else 0 }
--
-- Atomicity: reads first, then writes the record alone. A process that takes up the move of another
-- gets its token and its target, so that it recognizes a copy, unless it begins anew.
-- A repeat by the holder holds it again, with the same token.
if not exists() then
  return { 'gone' }
end
local refusal = forbidden()
if refusal then
  return refusal
end
local owner, till, token, target =
  unpack(redis.call('HMGET', KEYS[2], 'owner', 'until', 'token', 'target'))
if till and tonumber(till) > now and owner ~= ARGV[3] then
  return { 'moving' }
end
local earlier = token and target and ARGV[8] ~= '1'
if not earlier then
  token, target = ARGV[4], ARGV[5]
end
redis.call('HSET', KEYS[2], 'owner', ARGV[3], 'until', text(now + ARGV[6]), 'token', token, 'target', target)
redis.call('PEXPIRE', KEYS[2], ARGV[7])
return { 'held', token, target, earlier and 1 or 0 }
