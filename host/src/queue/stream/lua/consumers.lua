-- Delete consumers that hold nothing and were not seen for long. (Deleting a consumer that holds
-- deliveries would lose them silently.)
--
-- KEYS  1 stream, 2 fences (sorted set: consumer -> number of a call)
-- ARGV  1 group, 2 idle time, ms, 3 at most how many, 4 only this one ('' = any), 5 how names begin
--       that are spared; then consumers to spare
-- reply how many were deleted
--
-- Atomicity: read and deleted in one go, so that nothing is handed out in between.
-- A repeat finds none.
local spared = {}
for i = 6, #ARGV do
  spared[ARGV[i]] = true
end
local deleted = 0
for _, info in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  if deleted >= tonumber(ARGV[3]) then
    break
  end
  local consumer = named(info)
  local name = consumer['name']
  if consumer['pending'] == 0 and consumer['idle'] >= tonumber(ARGV[2])
    and (ARGV[4] == '' or ARGV[4] == name) and not spared[name]
    and name:sub(1, #ARGV[5]) ~= ARGV[5] then
    redis.call('ZREM', KEYS[2], name)
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], name)
    deleted = deleted + 1
  end
end
return deleted
