-- Publish what attempts published whose messages are gone from their queue.
--
-- KEYS  the keys that are written
-- ARGV  per message: how many of its writes an earlier try has done, then its writes
-- reply one word per message: done | <how many are done>-<why the next one is refused>; `-UNFIT` = a key has
--       another type than its write needs
--
-- Atomicity: every known cause of a refusal is found before the first write, for each message apart. A refusal
-- behind that says how many are done: the next try goes on there.
-- A repeat publishes again.
local out = {}
local at = 1
while at <= #ARGV do
  local written, all = tonumber(ARGV[at])
  all, at = writes(at + 1)
  local refused, after = refusal(all, written), written
  if not refused then
    refused, after = write_all(all, written)
  end
  out[#out + 1] = refused and after .. refused or 'done'
end
return out
