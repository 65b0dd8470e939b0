-- Void the copy of a two-phase move, unless it is written: its process may stand still, or its call be
-- on the way.
--
-- KEYS  1 the record of the copy (string)
-- ARGV  1 for how long the record is kept in ms
-- reply written | void
--
-- Atomicity: looked at and written in one go: a copy is written before, or never.
-- A repeat answers the same.
if redis.call('GET', KEYS[1]) == '1' then
  return 'written'
end
redis.call('SET', KEYS[1], 'void', 'PX', ARGV[1])
return 'void'
