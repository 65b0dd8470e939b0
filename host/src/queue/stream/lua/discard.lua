-- Take deliveries off the queue that this host has given up, or that are copied elsewhere.
--
-- KEYS  1 stream, 2 parked deliveries (sorted set: id -> due)
-- ARGV  1 group, 2 consumer (self), 3 mark of the group, 4 journals of the group (see `journals`; '' = none);
--       then per delivery: id, count it must have
-- reply one word per delivery (see `told`): done | gone | stolen
--
-- Atomicity: only reads can fail (no group, wrong type, the group was made again), before anything is written.
-- A repeat finds nothing: gone.
local ids = arguments(5, 2)
local words, own = obstacles(ids, arguments(6, 2)), {}
for i, id in ipairs(ids) do
  if not words[i] then
    own[#own + 1], words[i] = id, 'done'
  end
end
if #own > 0 then
  redis.call('XACK', KEYS[1], ARGV[1], unpack(own))
  forget_records(KEYS[2], ids, words)
  forget_held(KEYS[2], own)
  for _, id in ipairs(own) do
    forget_journal(ARGV[4], ARGV[1], id)
  end
end
return told(words)
