-- Hold a dead letter for a move that no one script can do.
--
-- KEYS  1 dead-letter queue (stream or list), 2 the record of the move (hash)
-- ARGV  1 stream | list, 2 id or value, 3 who moves it, 4 a token for a new move, 5 where it goes,
--       6 for how long it is held, 7 for how long the record is kept, both in ms, 8 begin anew: 0 | 1
-- reply { gone } | { moving } | { held, token, where it goes }
--
-- Atomicity: looks first, then writes the record alone. Whoever takes up what another began gets its
-- token and its target, so that a copy is recognized, unless it begins anew.
-- A repeat by who holds it holds it again, with the same token.
local there
if ARGV[1] == 'stream' then
  there = #redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2]) > 0
else
  there = redis.call('LPOS', KEYS[1], ARGV[2], 'RANK', -1)
end
if not there then
  return { 'gone' }
end
-- A user that may copy but not remove would leave one copy for every try.
local remove = ARGV[1] == 'stream' and { 'XDEL', ARGV[2] } or { 'LREM', '-1', ARGV[2] }
if not redis.acl_check_cmd(remove[1], KEYS[1], unpack(remove, 2)) then
  return redis.error_reply('NOPERM this user has no permission to run ' .. remove[1]:lower())
end
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
local owner, till, token, target =
  unpack(redis.call('HMGET', KEYS[2], 'owner', 'until', 'token', 'target'))
if till and tonumber(till) > now and owner ~= ARGV[3] then
  return { 'moving' }
end
if not token or not target or ARGV[8] == '1' then
  token, target = ARGV[4], ARGV[5]
end
redis.call('HSET', KEYS[2], 'owner', ARGV[3], 'until', string.format('%.0f', now + ARGV[6]),
  'token', token, 'target', target)
redis.call('PEXPIRE', KEYS[2], ARGV[7])
return { 'held', token, target }
