-- Part, after `kept`: how often deliveries were held. The sorted set has the time of the first hold (epoch ms), and as its
-- fraction the number of holds (see `kept`). It is not among KEYS: its name is that of the set of parked deliveries, which
-- is in the same slot, with another word.
local function held_set(parked)
  return string.sub(parked, 1, -(#ARGV[1] + 8)) .. 'held:' .. ARGV[1]
end
-- The holds of a delivery, and the time of the first one. Most sets are missing, so that is asked once for a call.
local has_held
local function held(set, id)
  if has_held == nil then
    has_held = redis.call('ZCARD', set) > 0
  end
  local score = has_held and redis.call('ZSCORE', set, id)
  if not score then
    return 0, 0
  end
  return (kept(score)), math.floor(tonumber(score))
end
-- Deliveries have left the group. A script that has written does not fail because of a set of another type.
local function forget_held(parked, ids)
  if #ids > 0 then
    redis.pcall('ZREM', held_set(parked), unpack(ids))
  end
end
