-- Count entries that the group has not read: a part of them, from an entry on.
--
-- KEYS  1 stream
-- ARGV  1 group, 2 consumer (self), 3 behind which entry to begin ('' = the last one that was handed out), 4 at most
--       how many to count, 5 after how many bytes of fields to stop
-- reply { how many, behind which entry it began, the last one counted or that entry, 1 if none is behind it or 0 }
--
-- Atomicity: reads only. Only the first command can fail (no stream, wrong type).
-- A repeat counts again.
local first = ARGV[3]
if first == '' then
  first = delivered()
end
if not first then
  return redis.error_reply('NOGROUP the group does not exist')
end
local most, last, counted, bytes = tonumber(ARGV[4]), first, 0, 0
while counted < most and bytes < tonumber(ARGV[5]) do
  local found = behind(last, math.min(most - counted, 64))
  if #found == 0 then
    return { counted, first, last, 1 }
  end
  for _, entry in ipairs(found) do
    for _, part in ipairs(entry[2]) do
      bytes = bytes + #part
    end
  end
  counted, last = counted + #found, found[#found][1]
end
return { counted, first, last, 0 }
