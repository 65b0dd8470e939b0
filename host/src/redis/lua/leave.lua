-- Leave suspects that must run alone under this host's own name, idle long enough to be orphans:
-- parked, they would lose the mark that tells other hosts to run them alone.
--
-- KEYS  1 stream, 2 fences (sorted set: consumer -> number of a call)
-- ARGV  1 group, 2 consumer (self), 3 number of this call, 4 idle time to set, ms; then per
--       delivery: id, count it must have, count it keeps
-- reply one word per delivery: done | gone | trimmed | stolen
--
-- A call that was given up and asked again is void, however late it comes: see park.lua.
-- Atomicity: only the first command can fail (no group, wrong type), before anything is written.
-- A repeat finds the count to keep, and sets the same again.
local fence = redis.call('ZSCORE', KEYS[2], ARGV[2])
if fence and tonumber(ARGV[3]) < tonumber(fence) then
  return redis.error_reply('VOID it was asked again since')
end
local out = {}
for i = 5, #ARGV, 3 do
  local held = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1)[1]
  if not held then
    out[#out + 1] = 'gone'
  elseif held[2] ~= ARGV[2]
    or held[4] ~= tonumber(ARGV[i + 1]) and held[4] ~= tonumber(ARGV[i + 2]) then
    out[#out + 1] = 'stolen'
  else
    local claimed = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[i],
      'IDLE', ARGV[4], 'RETRYCOUNT', ARGV[i + 2], 'JUSTID')
    out[#out + 1] = #claimed == 1 and 'done' or 'trimmed'
  end
end
return out
