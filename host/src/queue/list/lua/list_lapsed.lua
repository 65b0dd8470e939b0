-- List the instances of a reliable list that may hold orphans.
--
-- KEYS  1 instances (sorted set: instance -> last seen), 2 terms of the hosts, 3 recovery set, if there is
--       one
-- ARGV  1 idle time that makes an orphan, ms (the largest holds), 2 beginning of the key of a processing
--       list, 3 at most how many instances to look at, and how many records, 4 how many instances to pass over,
--       from the one that was seen longest ago
-- reply { names of instances, how many to pass over in the next call }
--
-- These are the instances that were not seen for the idle time and hold something, whatever their name. With a
-- recovery set also those with a record that is too old; and all of them where their processing lists
-- together hold more than it records (it has expired, or was deleted).
-- A time ahead of the clock is from before the clock was set back: it counts from now.
-- It reads processing lists that are not among KEYS: all are in the slot of KEYS[1].
-- Atomicity: it writes times only, of members that are there: so it runs out of memory as well.
-- A repeat asks again.
for _, key in ipairs({ KEYS[1], KEYS[3] }) do
  local ahead = redis.call('ZRANGEBYSCORE', key, '(' .. text(now), '(+inf', 'LIMIT', 0, ARGV[3])
  for _, member in ipairs(ahead) do
    redis.call('ZADD', key, text(now), member)
  end
end
local least, _, alike = agreed(KEYS[2], ARGV[1], KEYS[3])
local before = text(now - least)
local out, known = {}, {}
local function add(instance)
  if not known[instance] then
    known[instance] = true
    out[#out + 1] = instance
  end
end
-- nil: the key has another type.
local function held_by(instance)
  local length = redis.pcall('LLEN', ARGV[2] .. instance)
  return type(length) == 'number' and length or nil
end
local page = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', before, 'LIMIT', ARGV[4], ARGV[3])
for _, instance in ipairs(page) do
  if held_by(instance) ~= 0 then
    add(instance)
  end
end
local next = #page == tonumber(ARGV[3]) and ARGV[4] + #page or 0
if not KEYS[3] then
  return { out, next }
end
if alike then
  -- The living ones come first.
  local all = redis.call('ZRANGE', KEYS[1], 0, ARGV[3] - 1, 'REV')
  local held = 0
  for _, instance in ipairs(all) do
    held = held + (held_by(instance) or 0)
  end
  local owners = #redis.call('ZRANGEBYSCORE', KEYS[3], '+inf', '+inf')
  if held > redis.call('ZCARD', KEYS[3]) - owners then
    for _, instance in ipairs(all) do
      add(instance)
    end
    return { out, next }
  end
end
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', before, 'LIMIT', 0, ARGV[3])) do
  add(string.sub(member, 1, -17))
end
return { out, next }
