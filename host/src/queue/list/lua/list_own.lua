-- List the tokens of the deliveries that this instance of a reliable list holds.
--
-- KEYS  1 processing list (self)
-- ARGV  1 how many entries to look at
-- reply tokens, the oldest first
--
-- Atomicity: reads only. A repeat asks again.
local out, at, step, limit = {}, 1, 1, tonumber(ARGV[1])
while at <= limit do
  local page = redis.call('LRANGE', KEYS[1], -(at + step - 1), -at)
  if #page == 0 then
    break
  end
  local looked = 0
  for i = #page, 1, -1 do
    out[#out + 1] = string.sub(page[i], 1, 16)
    looked = looked + #page[i]
  end
  at = at + #page
  step = next_step(4194304, #page, looked)
end
return out
