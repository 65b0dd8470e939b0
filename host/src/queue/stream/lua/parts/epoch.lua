-- Part: whether the group ARGV[1] of the stream KEYS[1] is the one that this host knows. A consumer
-- with the name ARGV[3] marks it: it goes with the group, and a group that is made again has another.
--
-- Fails as for a missing group if it is not. Returns the names of all consumers.
local names
local function same_group()
  if not names then
    names = {}
    for _, info in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
      names[info[2]] = true
    end
    if not names[ARGV[3]] then
      error({ err = 'NOGROUP the consumer group was deleted and made again' })
    end
  end
  return names
end
