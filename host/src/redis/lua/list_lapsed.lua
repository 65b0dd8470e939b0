-- List the instances of a reliable list that may hold orphans.
--
-- KEYS  1 instances (sorted set: instance -> last seen), 2 recovery set, if there is one
-- ARGV  1 idle time that makes an orphan, ms, 2 beginning of the key of a processing list,
--       3 at most how many records to look at
-- reply names of instances
--
-- With a recovery set: those with a record that is too old; and all of them where their processing
-- lists together hold more than it records (it has expired, or somebody deleted it).
-- Without: those that were not seen for so long.
-- It reads processing lists that are not among KEYS: all are in the slot of KEYS[1].
-- Atomicity: reads only. A repeat asks again.
local before = text(now - ARGV[1])
if not KEYS[2] then
  return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', before)
end
local all = redis.call('ZRANGE', KEYS[1], 0, -1)
local held = 0
for _, instance in ipairs(all) do
  local length = redis.pcall('LLEN', ARGV[2] .. instance)
  -- A key of another type belongs to somebody else.
  if type(length) == 'number' then
    held = held + length
  end
end
if held > redis.call('ZCARD', KEYS[2]) then
  return all
end
local out, known = {}, {}
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', before, 'LIMIT', 0, ARGV[3])) do
  local instance = string.sub(member, 1, -17)
  if not known[instance] then
    known[instance] = true
    out[#out + 1] = instance
  end
end
return out
