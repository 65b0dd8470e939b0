-- Remove old journals whose messages are neither pending nor unread.
--
-- KEYS  1 stream, 2 journals of the group (sorted set, see `journals`)
-- ARGV  1 group, 2 consumer (self), 3 mark of the group, 4 how old they are, ms, 5 at most how many to look at
-- reply { how many are removed, how many were looked at, 0 }
--
-- Those that stay are looked at again when they are as old once more.
-- Atomicity: fails before the first write if there is no group, or it was made again. A repeat looks at others.
same_group()
local removed = 0
local old = redis.call('ZRANGEBYSCORE', KEYS[2], 0, text(now - ARGV[4]), 'LIMIT', 0, ARGV[5])
for _, id in ipairs(old) do
  if pending(id) or is_unread(id) then
    redis.call('ZADD', KEYS[2], text(now), id)
  else
    forget_journal(KEYS[2], ARGV[1], id)
    removed = removed + 1
  end
end
return { removed, #old, 0 }
