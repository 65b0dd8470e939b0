-- Read a stretch of a dead-letter queue that is a stream, without the bodies.
--
-- KEYS  1 dead-letter queue (stream)
-- ARGV  1 XRANGE or XREVRANGE, 2 where to begin, 3 where to end, 4 most entries, 5 after how many bytes to stop,
--       6 at how many bytes to cut a value, 7... the fields that are wanted, in lower case
-- reply { { id, { field, value, ... } }, ... }: the fields that there are of those, each once
--
-- Atomicity: reads only, and a bounded stretch.
-- A repeat reads again.
local wanted, from, found, bytes, step = {}, ARGV[2], {}, 0, 1
for i = 7, #ARGV do
  wanted[ARGV[i]] = true
end
while #found < tonumber(ARGV[4]) and bytes < tonumber(ARGV[5]) do
  local count = math.min(step, tonumber(ARGV[4]) - #found)
  local entries = redis.call(ARGV[1], KEYS[1], from, ARGV[3], 'COUNT', count)
  for _, entry in ipairs(entries) do
    local kept, seen = {}, {}
    for i = 1, #entry[2], 2 do
      local name = string.lower(string.sub(entry[2][i], 1, 64))
      -- A reader keeps about 96 bytes for each name and value beside its own bytes.
      bytes = bytes + #entry[2][i] + #entry[2][i + 1] + 192
      if wanted[name] and not seen[name] then
        seen[name] = true
        kept[#kept + 1] = name
        kept[#kept + 1] = string.sub(entry[2][i + 1], 1, tonumber(ARGV[6]))
      end
    end
    found[#found + 1] = { entry[1], kept }
  end
  -- Redis refuses an interval behind the greatest id there is.
  if #entries < count or found[#found][1] == ARGV[3] then
    break
  end
  from = '(' .. found[#found][1]
  step = next_step(tonumber(ARGV[5]), #found, bytes)
end
return found
