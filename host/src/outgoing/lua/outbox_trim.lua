-- Remove the entries of an outbox that its destination confirms.
--
-- KEYS  1 outbox
-- ARGV  1 last entry that the destination took, 2 the id behind it
-- reply how many were removed; -1 = the destination took other entries than these, and nothing is removed
--
-- An entry is removed together with all before it, and the ids of an outbox rise. So if entries up to the
-- last one that the destination took are here, but it is not, then the outbox was lost, and began again with
-- lower ids (a failover or a deletion, and a clock that went back): these are new.
-- Atomicity: the check and the removal are one step.
-- A repeat finds nothing to remove.
if #redis.call('XRANGE', KEYS[1], '-', ARGV[1], 'COUNT', 1) == 0 then
  return 0
end
if #redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1]) == 0 then
  return -1
end
return redis.call('XTRIM', KEYS[1], 'MINID', '=', ARGV[2])
