-- End a two-phase move: remove the dead letter, whose copy is written; or keep it, without a copy.
--
-- KEYS  1 dead-letter queue (stream or list), 2 the record of the move (hash)
-- ARGV  1 stream | list, 2 id or value, 3 who moves it, 4 the token of the move, 5 remove | keep
-- reply done | gone (removed by another process) | moving (taken up by another process)
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
local removed = ARGV[5] == 'keep' or remove() == 1
redis.call('DEL', KEYS[2])
return removed and 'done' or 'gone'
