-- Trim entries that every group has acknowledged: all of them, or the oldest over a length.
--
-- KEYS  1 stream
-- ARGV  1 most entries to trim in this call, 2 length to keep, approximately ('' = none),
--       3 consumer of a group that lacks parked deliveries: until they are pending again, nothing is
--       trimmed
-- reply { trimmed, 1 if the stream stays longer because entries are unread or pending, else 0 }
--
-- Atomicity: the slowest group is found and the stream trimmed in one go, so that no group made or
-- read in between loses anything. A repeat trims what was acknowledged or added since.
local most, excess = tonumber(ARGV[1]), nil
if ARGV[2] ~= '' then
  excess = redis.call('XLEN', KEYS[1]) - ARGV[2]
  if excess <= 0 then
    return { 0, 0 }
  end
end

-- The next id, if Lua can count that far; else the id itself, whose entry then stays.
local function after(id)
  local ms, sequence = split(id)
  if #sequence > 15 then return id end
  return ms .. '-' .. string.format('%.0f', tonumber(sequence) + 1)
end

local keep
for _, info in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local group = named(info)
  for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], group['name'])) do
    if named(consumer)['name'] == ARGV[3] then
      return { 0, 0 }
    end
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
-- LIMIT with ~ trims whole nodes, and never more entries than that.
local trimmed = redis.call('XTRIM', KEYS[1], 'MINID', '~', keep, 'LIMIT', math.min(excess or most, most))
if trimmed + 1000 >= most then
  return { trimmed, 0 }
end
if not excess then
  -- The rest of the last node.
  return { trimmed + redis.call('XTRIM', KEYS[1], 'MINID', keep), 0 }
end
-- Left over: less than a node, or entries that some group needs.
excess = excess - trimmed
local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
local is_held = excess > 0 and (excess > 200 or not oldest or not less(oldest[1], keep))
return { trimmed, is_held and 1 or 0 }
