-- Renew the leases of deliveries that this host still owns; never steal one back.
--
-- KEYS  1 stream
-- ARGV  1 group, 2 consumer (self); then ids
-- reply one word per id: done | gone | trimmed | stolen
--
-- Atomicity: only the first command can fail (no group, wrong type), before anything is written.
-- A repeat renews again. Counts stay as they are.
local out = {}
for i = 3, #ARGV do
  local held = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1)[1]
  if not held then
    out[#out + 1] = 'gone'
  elseif held[2] ~= ARGV[2] then
    out[#out + 1] = 'stolen'
  else
    local claimed = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[i], 'JUSTID')
    out[#out + 1] = #claimed == 1 and 'done' or 'trimmed'
  end
end
return out
