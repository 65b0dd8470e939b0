-- Part, after `time`: sorted sets of members and the times when they are due, in epoch ms. A fraction of a millisecond
-- means something else: a member is due when its millisecond begins.
local function due(key, most)
  return redis.call('ZRANGEBYSCORE', key, '-inf', '(' .. text(now + 1), 'LIMIT', '0', most)
end
-- Milliseconds until the first member is due; -1 if the set is empty.
local function wait(key)
  local first = redis.call('ZRANGE', key, '0', '0', 'WITHSCORES')[2]
  return first and math.max(0, math.floor(tonumber(first)) - now) or -1
end
