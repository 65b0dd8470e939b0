-- Forget the holds of deliveries that are not pending: they were settled by hand, or by a late acknowledgement.
--
-- KEYS  1 stream, 2 parked deliveries (sorted set: id -> due)
-- ARGV  1 group, 2 consumer (self), 3 mark of the group, 4 at most how many to look at, 5 a random number in 0..1: it says
--       where to begin, 6 consumer that says that not all parked deliveries are pending
-- reply how many are forgotten
--
-- Atomicity: fails before the first write if there is no group, or it was made again. A repeat looks at others.
local set, most = held_set(KEYS[2]), tonumber(ARGV[4])
local count = redis.call('ZCARD', set)
if count == 0 then
  return 0
end
same_group()
local first = math.floor(math.max(0, count - most + 1) * ARGV[5])
local gone = {}
for _, id in ipairs(redis.call('ZRANGE', set, first, first + most - 1)) do
  if not pending(id) then
    gone[#gone + 1] = id
  end
end
-- Parked deliveries of an earlier group may not be pending yet.
if #gone > 0 and not names[ARGV[6]] then
  forget_held(KEYS[2], gone)
  return #gone
end
return 0
