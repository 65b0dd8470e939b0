-- Count the reasons of a stretch of a dead-letter queue.
--
-- KEYS  1 dead-letter queue (stream)
-- ARGV  1 where to begin ('-', or '(' and the last id seen), 2 last id, 3 field of the reason in
--       lower case, 4 most entries, 5 after how many bytes of fields to stop
-- reply { last id seen ('' = there are no more), reason, count, reason, count, ... }; reasons are
--       cut at 64 bytes, and an entry without one counts as ''
--
-- Atomicity: reads only, and a bounded stretch.
-- A repeat counts the same again.
local from, seen, bytes, last = ARGV[1], 0, 0, ''
local counts, order = {}, {}
local function reason_of(fields)
  for i = 1, #fields, 2 do
    local field = fields[i]
    if field == ARGV[3] or (#field == #ARGV[3] and string.lower(field) == ARGV[3]) then
      return string.sub(fields[i + 1], 1, 64)
    end
  end
  return ''
end
while seen < tonumber(ARGV[4]) and bytes < tonumber(ARGV[5]) do
  local entries = redis.call('XRANGE', KEYS[1], from, ARGV[2], 'COUNT', 16)
  if #entries == 0 then
    last = ''
    break
  end
  for _, entry in ipairs(entries) do
    local reason = reason_of(entry[2])
    if not counts[reason] then
      counts[reason] = 0
      order[#order + 1] = reason
    end
    counts[reason] = counts[reason] + 1
    for _, part in ipairs(entry[2]) do
      bytes = bytes + #part
    end
    last = entry[1]
  end
  seen = seen + #entries
  if last == ARGV[2] then
    -- Redis refuses an interval behind the greatest id there is.
    last = ''
    break
  end
  from = '(' .. last
end
local reply = { last }
for _, reason in ipairs(order) do
  reply[#reply + 1] = reason
  reply[#reply + 1] = counts[reason]
end
return reply
