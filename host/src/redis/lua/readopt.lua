-- After a repair: hold again what this host holds and the new group does not know.
--
-- KEYS  1 stream
-- ARGV  1 group, 2 consumer (self); then per delivery: id, count
-- reply one word per delivery: done | trimmed | stolen
--
-- Atomicity: only the first command can fail (no group, wrong type), before anything is written.
-- A repeat finds them held, and leaves them.
local out = {}
for i = 3, #ARGV, 2 do
  local held = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1)[1]
  if held then
    out[#out + 1] = held[2] == ARGV[2] and 'done' or 'stolen'
  else
    local claimed = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, ARGV[i],
      'FORCE', 'RETRYCOUNT', ARGV[i + 1], 'JUSTID')
    out[#out + 1] = #claimed == 1 and 'done' or 'trimmed'
  end
end
return out
