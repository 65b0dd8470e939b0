-- End a move that no one script can do: remove the dead letter, whose copy is written.
--
-- KEYS  1 dead-letter queue (stream or list), 2 the record of the move (hash)
-- ARGV  1 stream | list, 2 id or value, 3 who moves it, 4 the token of the move
-- reply done | gone (removed by somebody else) | moving (taken up by somebody else)
--
-- Atomicity: both are removed together, so that no token outlives its move. Of equal values the
-- oldest goes.
-- A repeat finds no record: gone.
local owner, token = unpack(redis.call('HMGET', KEYS[2], 'owner', 'token'))
if token ~= ARGV[4] then
  return 'gone'
end
if owner ~= ARGV[3] then
  return 'moving'
end
local removed
if ARGV[1] == 'stream' then
  removed = redis.call('XDEL', KEYS[1], ARGV[2])
else
  removed = redis.call('LREM', KEYS[1], -1, ARGV[2])
end
redis.call('DEL', KEYS[2])
return removed == 1 and 'done' or 'gone'
