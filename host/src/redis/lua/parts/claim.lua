-- Part: claim deliveries of the stream KEYS[1] and the group ARGV[1] for the consumer ARGV[2]. The
-- count stays. `held` is a reply of XPENDING; each claim is { id, count, idle ms, fields }.
local claims, trimmed, bytes = {}, 0, 0
local function claim(held, ...)
  local entry = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], '0', held[1], 'RETRYCOUNT', held[4], ...)[1]
  if not entry then
    trimmed = trimmed + 1
    return
  end
  claims[#claims + 1] = { held[1], held[4], held[3], entry[2] }
  for _, part in ipairs(entry[2]) do
    bytes = bytes + #part
  end
end
