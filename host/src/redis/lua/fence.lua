#!lua flags=allow-oom
-- Void what this host has asked and had no answer to: it may still be on its way.
--
-- KEYS  1 fences (sorted set: consumer -> number of a call)
-- ARGV  1 consumer (self), 2 the number of the next call: calls with a lower one are void
-- reply OK
--
-- A few bytes for each host that ever asked again, so it runs out of memory, too: else what is void
-- by then could still be carried out.
-- Atomicity: one write. A repeat, or one that comes late, lowers no number.
redis.call('ZADD', KEYS[1], 'GT', ARGV[2], ARGV[1])
return 'OK'
