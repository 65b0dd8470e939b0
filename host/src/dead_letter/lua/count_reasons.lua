-- Count the reasons of a stretch of a dead-letter queue.
--
-- KEYS  1 dead-letter queue (stream)
-- ARGV  1 where to begin ('-', or '(' and the last id seen), 2 last id, 3 field of the reason and
--       4 of the queue that it died in, in lower case, 5 most entries, 6 after how many bytes of
--       fields to stop
-- reply { last id seen ('' = there are no more), reason, count, reason, count, ... }; reasons are
--       cut at 64 bytes. An entry without one counts as '', and so does one that died in this very
--       stream: it was replayed, and is a message again
--
-- Atomicity: reads only, and a bounded stretch.
-- A repeat counts the same again.
local from, seen, bytes, last, step = ARGV[1], 0, 0, '', 1
local counts, order = {}, {}
local function value_of(fields, name)
  for i = 1, #fields, 2 do
    local field = fields[i]
    if field == name or (#field == #name and string.lower(field) == name) then
      return fields[i + 1]
    end
  end
  return ''
end
local function reason_of(fields)
  local reason = value_of(fields, ARGV[3])
  if reason == '' or value_of(fields, ARGV[4]) == KEYS[1] then
    return ''
  end
  return string.sub(reason, 1, 64)
end
while seen < tonumber(ARGV[5]) and bytes < tonumber(ARGV[6]) do
  local entries = redis.call('XRANGE', KEYS[1], from, ARGV[2], 'COUNT', step)
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
  step = next_step(tonumber(ARGV[6]), seen, bytes)
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
