-- Part, after `step`: the entries of a processing list that a call names. A name is the entry itself; or, of
-- a large entry, its token alone, so that its value need not be sent. The oldest are looked at first.
local function find(key, names)
  local wanted, left = {}, 0
  for _, name in ipairs(names) do
    if #name == 16 and not wanted[name] then
      wanted[name], left = true, left + 1
    end
  end
  local found, at, step = {}, 1, 1
  while left > 0 do
    local page = redis.call('LRANGE', key, -(at + step - 1), -at)
    if #page == 0 then
      break
    end
    local looked = 0
    for i = #page, 1, -1 do
      looked = looked + #page[i]
      local token = string.sub(page[i], 1, 16)
      if wanted[token] and not found[token] then
        found[token], left = page[i], left - 1
      end
    end
    at = at + #page
    step = next_step(4194304, #page, looked)
  end
  -- The entry of a name; nil if it is not there.
  return function(name)
    if #name == 16 then
      return found[name]
    end
    return redis.call('LPOS', key, name, 'RANK', -1) and name or nil
  end
end
-- A value: what it begins with, and how many bytes at the end of an entry follow.
local function joined(start, entry, count)
  return tonumber(count) > 0 and start .. string.sub(entry, -tonumber(count)) or start
end
