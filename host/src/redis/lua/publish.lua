-- Publish what attempts published whose messages are gone from their queue.
--
-- KEYS  the keys that are written
-- ARGV  per message: its writes
-- reply one word per message: done | -<why it is refused>; `-UNFIT` = a key has another type than its write
--       needs
--
-- Atomicity: every cause of a refusal is found before the first write, for each message apart.
-- A repeat publishes again.
local out = {}
local at = 1
while at <= #ARGV do
  local all
  all, at = writes(at)
  out[#out + 1] = refusal(all) or write_all(all) or 'done'
end
return out
