-- Part: the due time of a parked delivery says which count it keeps, by a fraction of a millisecond:
-- so the count outlives the delivery. A time without a fraction is from a host that did not write it.
local function due_time(ms, count)
  return string.format('%.10f', ms + (math.min(tonumber(count), 1022) + 1) / 1024)
end
local function kept(score)
  local fraction = math.floor(tonumber(score) % 1 * 1024 + 0.5)
  -- Without a count it counts as started once.
  return fraction > 0 and fraction - 1 or 1
end
