-- Make a group again that somebody deleted, with its stream if that is gone too.
--
-- KEYS  1 stream, 2 parked deliveries (sorted set: id -> due)
-- ARGV  1 group, 2 consumer of parked deliveries, 3 the last id that this host saw,
--       4 at most how many parked deliveries to hold again
-- reply 'intact' | 'group' | 'stream'
--
-- The stream is still there: the group goes on behind the last id that this host saw, and what the
-- sorted set names is parked again, as started once: its count is lost. If the stream is younger
-- than that id, it was deleted and written anew: everything in it is unread.
-- Atomicity: no other host can take due deliveries between the two. A repeat finds the group.
local function parts(id)
  return string.match(id, '^(%d+)-(%d+)$')
end

-- Decimal texts: sequence numbers have 64 bits, Lua's numbers 53.
local function less(a, b)
  local a1, a2 = parts(a)
  local b1, b2 = parts(b)
  if #a1 ~= #b1 then return #a1 < #b1 end
  if a1 ~= b1 then return a1 < b1 end
  if #a2 ~= #b2 then return #a2 < #b2 end
  return a2 < b2
end

if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')
  return 'stream'
end
for _, info in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  for i = 1, #info, 2 do
    if info[i] == 'name' and info[i + 1] == ARGV[1] then
      return 'intact'
    end
  end
end
local parked = redis.call('ZRANGE', KEYS[2], 0, tonumber(ARGV[4]) - 1)
local info = redis.call('XINFO', 'STREAM', KEYS[1])
local start = ARGV[3]
for i = 1, #info, 2 do
  if info[i] == 'last-generated-id' and less(info[i + 1], start) then
    start = '0-0'
  end
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
