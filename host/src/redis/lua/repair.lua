-- Make a deleted group again, with its stream if that is gone too.
--
-- KEYS  1 stream, 2 parked deliveries (sorted set: id -> due)
-- ARGV  1 group, 2 consumer of parked deliveries, 3 the last id that this host saw,
--       4 at most how many parked deliveries to hold again
-- reply 'intact' | 'group' | 'stream'
--
-- If the stream is still there, the group goes on behind the last id that this host saw, and the
-- deliveries in the sorted set are parked again, with one start: their count is lost. If the stream is
-- younger than that id, somebody deleted it and wrote it anew: everything in it is unread.
-- Atomicity: no other host can take due deliveries between the two. A repeat finds the group.
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')
  return 'stream'
end
for _, info in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  if named(info)['name'] == ARGV[1] then
    return 'intact'
  end
end
local parked = redis.call('ZRANGE', KEYS[2], 0, tonumber(ARGV[4]) - 1)
local start = ARGV[3]
if less(named(redis.call('XINFO', 'STREAM', KEYS[1]))['last-generated-id'], start) then
  start = '0-0'
end
redis.call('XGROUP', 'CREATE', KEYS[1], ARGV[1], start)
if start ~= '0-0' then
  for _, id in ipairs(parked) do
    if not less(start, id) then
      redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, id, 'FORCE', 'RETRYCOUNT', 1, 'JUSTID')
    end
  end
end
return 'group'
