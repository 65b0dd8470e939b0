-- Trim the oldest entries over a length, but nothing that some group has not read or not settled.
--
-- KEYS  1 stream
-- ARGV  1 most entries to trim in this call, 2 length to keep, approximately
-- reply { trimmed, 1 if the stream stays longer because entries are unread or pending, else 0 }
--
-- Atomicity: the slowest group is found and the stream trimmed in one go. A repeat trims what has
-- come since.
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

local function after(id)
  local ms, seq = parts(id)
  if #seq > 15 then return id end
  return ms .. '-' .. string.format('%.0f', tonumber(seq) + 1)
end

local excess = redis.call('XLEN', KEYS[1]) - tonumber(ARGV[2])
if excess <= 0 then
  return { 0, 0 }
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
-- LIMIT with ~ trims whole nodes and never more entries than that.
local most = math.min(excess, tonumber(ARGV[1]))
local trimmed = redis.call('XTRIM', KEYS[1], 'MINID', '~', keep, 'LIMIT', most)
excess = excess - trimmed
-- Left over: less than a node, or more work than one call does, or entries that are needed.
local held = 0
if excess > 0 and trimmed + 1000 < tonumber(ARGV[1]) then
  local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
  if not oldest or not less(oldest[1], keep) or excess > 200 then
    held = 1
  end
end
return { trimmed, held }
