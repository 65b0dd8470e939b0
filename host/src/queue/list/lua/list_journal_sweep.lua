-- Remove old journals of a list whose messages are not there.
--
-- KEYS  1 the list, 2 retry list, 3 delayed values (sorted set), 4 instances (sorted set), 5 journals (sorted set, see
--       `journals`)
-- ARGV  1 beginning of the key of a processing list, 2 how old they are, ms, 3 at most how many, 4 how many values are looked at,
--       5 how many bytes of them
-- reply { how many are removed, how many were looked at, whether they stay because not all values were looked at (0 | 1) }
--
-- A value says which journal its message has: in its header, or by its token, where a host has it for the first time. While
-- there are more values than may be looked at, or a header that cannot be read, all journals stay. Those that stay are
-- looked at again when they are as old once more.
-- It reads processing lists that are not among KEYS: all are in the slot of KEYS[1].
-- Atomicity: nothing can come between the look and the removal. A repeat looks at others.
local old = redis.call('ZRANGEBYSCORE', KEYS[5], 0, text(now - ARGV[2]), 'LIMIT', 0, ARGV[3])
if #old == 0 then
  return { 0, 0, 0 }
end
local NAME, ID = 'x-hostler-journal', string.rep('%x', 32)
local is_there, values, bytes = {}, tonumber(ARGV[4]), tonumber(ARGV[5])
local function hex(token)
  return (string.gsub(token, '.', function(c) return string.format('%02x', string.byte(c)) end))
end
-- Whether the values of this key, which `command` reads page by page, are few enough, and all of them can be read.
local function look(command, key, has_token)
  local at = 0
  repeat
    local page = redis.call(command, key, at, at + 9)
    for _, value in ipairs(page) do
      values, bytes = values - 1, bytes - #value
      if has_token then
        is_there[hex(string.sub(value, 1, 16))] = true
      end
      local header = string.find(value, NAME, 1, true)
      while header do
        local behind = header + #NAME
        -- The name of the journal stands right behind that of the header, in each framing.
        local id = string.match(string.sub(value, behind, behind + 47), ID)
        if not id then
          return false
        end
        is_there[id] = true
        header = string.find(value, NAME, behind, true)
      end
    end
    if values < 0 or bytes < 0 then
      return false
    end
    at = at + 10
  until #page < 10
  return true
end
local is_whole = look('LRANGE', KEYS[1], false) and look('LRANGE', KEYS[2], false) and look('ZRANGE', KEYS[3], true)
for _, name in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do
  is_whole = is_whole and look('LRANGE', ARGV[1] .. name, true)
end
if not is_whole then
  return { 0, 0, 1 }
end
local removed = 0
for _, id in ipairs(old) do
  if is_there[id] then
    redis.call('ZADD', KEYS[5], text(now), id)
  else
    forget_journal(KEYS[5], '', id)
    removed = removed + 1
  end
end
return { removed, #old, 0 }
