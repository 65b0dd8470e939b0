-- Record starts before the handler runs, or confirm leases (expect = write). Renews the lease.
--
-- KEYS  1 stream
-- ARGV  1 group, 2 consumer (self); then per delivery: id, expected count, count to write
-- reply one word per delivery: done | gone | trimmed | stolen
--
-- Atomicity: only the first command can fail (no group, wrong type), before anything is written.
-- A repeat finds the count already written and writes it again: done.
local out = {}
for i = 3, #ARGV, 3 do
  local held = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1)[1]
  if not held then
    out[#out + 1] = 'gone'
  elseif held[2] ~= ARGV[2] or (held[4] ~= tonumber(ARGV[i + 1]) and held[4] ~= tonumber(ARGV[i + 2])) then
    out[#out + 1] = 'stolen'
  else
    -- Claiming an entry that was trimmed takes it off the pending list and returns nothing.
    local claimed = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[i],
      'RETRYCOUNT', ARGV[i + 2], 'JUSTID')
    out[#out + 1] = #claimed == 1 and 'done' or 'trimmed'
  end
end
return out
