-- Park deliveries: no host owns them until they are due. Each keeps a count.
--
-- KEYS  1 stream, 2 fences (sorted set: consumer -> number of a call),
--       3 parked deliveries (sorted set: id -> due, epoch ms by this server's clock)
-- ARGV  1 group, 2 consumer (self), 3 mark of the group, 4 number of this call, 5 consumer of parked
--       deliveries; then per delivery: id, count it must have, count it keeps, delay in ms
-- reply one word per delivery: done | gone | trimmed | stolen
--
-- Atomicity: the due time is written first. It is the only write that can fail (wrong type, out of
-- memory). Behind the first delivery, the call also fails if the group was made again.
-- A repeat finds the delivery parked with the count to keep: done.
local out = {}
for i = 6, #ARGV, 4 do
  local id, keep = ARGV[i], ARGV[i + 2]
  local held = pending(id)
  local is_parked = held and held[2] == ARGV[5] and held[4] == tonumber(keep)
  local word = is_parked and 'done' or obstacle(id, ARGV[i + 1])
  if not word then
    redis.call('ZADD', KEYS[3], text(now + ARGV[i + 3]), id)
    word = hold(ARGV[5], id, 'RETRYCOUNT', keep, 'JUSTID')
    if word == 'trimmed' then
      redis.call('ZREM', KEYS[3], id)
    end
  end
  out[#out + 1] = word
end
return out
