-- Trim entries that every group has acknowledged: all of them, or the oldest over a length.
--
-- KEYS  1 stream
-- ARGV  1 most entries to trim in this call, 2 length to keep, approximately ('' = none),
--       3 consumer of a group that lacks parked deliveries, 4 consumer of parked deliveries, 5 beginning of
--       the key of a group's parked deliveries, 6 group (own), 7 consumer (self; '' = it never held anything)
-- reply { trimmed, 1 if the stream stays longer because entries are unread or pending, else 0, 1 if there may be
--       more to trim, else 0 }
--
-- While a group may lack parked deliveries, or this host what it holds, nothing is trimmed: consumers may have been
-- deleted, and hosts make those deliveries again.
-- It reads the records of other groups, which are not among KEYS: all are in the slot of KEYS[1].
-- Atomicity: the slowest group is found and the stream trimmed in one go, so that no group made or
-- read in between loses anything. A repeat trims what was acknowledged or added since.
local most, excess = tonumber(ARGV[1]), nil
if ARGV[2] ~= '' then
  excess = redis.call('XLEN', KEYS[1]) - ARGV[2]
  if excess <= 0 then
    return { 0, 0, 0 }
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
  local names = {}
  for _, info in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], group['name'])) do
    names[named(info)['name']] = true
  end
  -- The key of a group of another program may be of another type.
  local records = not names[ARGV[4]] and redis.pcall('ZCARD', ARGV[5] .. group['name'])
  local lacks_own = group['name'] == ARGV[6] and ARGV[7] ~= '' and not names[ARGV[7]]
  if names[ARGV[3]] or lacks_own or (type(records) == 'number' and records > 0) then
    return { 0, 0, 0 }
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
  return { 0, 0, 0 }
end
-- LIMIT with ~ trims whole nodes, and never more entries than that.
local trimmed = redis.call('XTRIM', KEYS[1], 'MINID', '~', keep, 'LIMIT', math.min(excess or most, most))
if trimmed + 1000 >= most then
  return { trimmed, 0, 1 }
end
if not excess then
  -- The rest of the last node.
  return { trimmed + redis.call('XTRIM', KEYS[1], 'MINID', keep), 0, 0 }
end
-- Left over: less than a node, or entries that some group needs.
excess = excess - trimmed
local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
local is_held = excess > 0 and (excess > 200 or not oldest or not less(oldest[1], keep))
return { trimmed, is_held and 1 or 0, 0 }
