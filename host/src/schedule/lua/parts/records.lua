-- Part: the records of schedules in KEYS[1], and the next ticks in KEYS[2]. Nothing is written before both can be: Lua
-- takes nothing back.
for _, command in ipairs({ { 'HSET', KEYS[1], 'f', 'v' }, { 'HDEL', KEYS[1], 'f' }, { 'ZADD', KEYS[2], '1', 'm' }, { 'ZREM', KEYS[2], 'm' } }) do
  if not redis.acl_check_cmd(unpack(command)) then
    return redis.error_reply('NOPERM this user has no permission to run ' .. command[1]:lower() .. ' on ' .. command[2])
  end
end
redis.call('HLEN', KEYS[1])
redis.call('ZCARD', KEYS[2])
-- A JSON object; an empty one where there is none.
local function object(json)
  local ok, value = pcall(cjson.decode, json or '')
  return ok and type(value) == 'table' and value or {}
end
local function record_of(name)
  return object(redis.call('HGET', KEYS[1], 'r:' .. name))
end
local function keep(name, record)
  redis.call('HSET', KEYS[1], 'r:' .. name, cjson.encode(record))
end
-- The oldest zone data that a next tick was computed with.
local function note_zones(zones)
  local known = redis.call('HGET', KEYS[1], 'zones')
  if not known or known > zones then
    redis.call('HSET', KEYS[1], 'zones', zones)
  end
end
local function remove(name)
  redis.call('HDEL', KEYS[1], 'd:' .. name, 'b:' .. name, 'r:' .. name)
  redis.call('ZREM', KEYS[2], name, 'run ' .. name)
end
-- The names of all schedules.
local function names()
  local out = {}
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if field:sub(1, 2) == 'd:' then
      out[#out + 1] = field:sub(3)
    end
  end
  return out
end
-- Nothing is left of the last schedule.
local function tidy()
  if #names() == 0 then
    redis.call('HDEL', KEYS[1], 'zones')
  end
end
