-- Part: the due time of a parked delivery says which count it keeps, by a fraction of a millisecond: so the count
-- outlives the delivery. It also says whether a host has taken the delivery, and has not shown that it knows that. A time
-- without a fraction is from a host that did not write it. Half a step less says that its limits have reserved its start for
-- this time: a host that does not know limits reads the same count.
local TAKEN = 1024
local function due_time(ms, count, taken, reserved)
  local half = reserved and 0.5 or 0
  return string.format('%.12f', ms + (math.min(tonumber(count), 1022) + 1 + (taken or 0) - half) / 2048)
end
local function is_reserved(score)
  return score and math.floor(tonumber(score) % 1 * 4096 + 0.5) % 2 == 1
end
local function kept(score)
  local fraction = math.floor(tonumber(score) % 1 * 2048 + 0.5)
  local is_taken = fraction >= TAKEN
  fraction = is_taken and fraction - TAKEN or fraction
  -- Without a count it counts as started once.
  return fraction > 0 and fraction - 1 or 1, is_taken
end
