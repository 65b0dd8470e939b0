-- Void the calls of this host that had no answer: they may still arrive.
--
-- KEYS  1 fences (sorted set: consumer -> number of a call)
-- ARGV  1 consumer (self), 2 the number of the next call: calls with a lower one are void
-- reply OK
--
-- It adds a few bytes for each host that ever repeated a call, and runs out of memory as well: else a
-- void call could still take effect.
-- Atomicity: one write. A repeat, or a late call, lowers no number.
redis.call('ZADD', KEYS[1], 'GT', ARGV[2], ARGV[1])
return 'OK'
