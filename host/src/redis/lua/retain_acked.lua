-- Trim what every group has acknowledged.
--
-- KEYS  1 stream
-- ARGV  1 most entries to trim in this call
-- reply { trimmed, 0 }
--
-- Atomicity: the slowest group is found and the stream trimmed in one go, so that no group made or
-- read in between loses anything. A repeat trims what has been acknowledged since.
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

-- The next id, if Lua can count that far; else the id itself, which then is kept.
local function after(id)
  local ms, seq = parts(id)
  if #seq > 15 then return id end
  return ms .. '-' .. string.format('%.0f', tonumber(seq) + 1)
end

local keep
for _, info in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local group = {}
  for i = 1, #info, 2 do
    group[info[i]] = info[i + 1]
  end
  local first = redis.call('XPENDING', KEYS[1], group['name'], '-', '+', 1)[1]
  local needs = after(group['last-delivered-id'])
  if first and less(first[1], needs) then
    needs = first[1]
  end
  if not keep or less(needs, keep) then
    keep = needs
  end
end
if not keep then
  return { 0, 0 }
end
-- Whole nodes in bounded steps, then the rest of the last node.
local trimmed = redis.call('XTRIM', KEYS[1], 'MINID', '~', keep, 'LIMIT', ARGV[1])
if trimmed + 1000 < tonumber(ARGV[1]) then
  trimmed = trimmed + redis.call('XTRIM', KEYS[1], 'MINID', keep)
end
return { trimmed, 0 }
