-- End a two-phase move: remove the dead letter, whose copy is written.
--
-- KEYS  1 dead-letter queue (stream or list), 2 the record of the move (hash)
-- ARGV  1 stream | list, 2 id or value, 3 who moves it, 4 the token of the move
-- reply done | gone (removed by somebody else) | moving (taken up by somebody else)
--
-- Atomicity: both are removed together, so that no token outlives its move.
-- A repeat finds no record: gone.
local owner, token = unpack(redis.call('HMGET', KEYS[2], 'owner', 'token'))
if token ~= ARGV[4] then
  return 'gone'
end
if owner ~= ARGV[3] then
  return 'moving'
end
local removed = remove()
redis.call('DEL', KEYS[2])
return removed == 1 and 'done' or 'gone'
