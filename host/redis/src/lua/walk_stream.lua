-- Read a stretch of a stream: its entries, or those that a group has pending.
--
-- KEYS  1 stream
-- ARGV  1 XRANGE, XREVRANGE or XPENDING, 2 where to begin, 3 where to end, 4 the group of XPENDING, 5 most entries, 6 after how
--       many bytes to stop, 7 at how many bytes to cut a value, 8... the fields that are wanted, in lower case; without any, all
--       fields come whole
-- reply { { id, { field, value, ... } }, ... }: of wanted fields those that there are, each once. A pending entry that is gone
--       has no fields
--
-- Atomicity: reads only, and a bounded stretch.
-- A repeat reads again.
local wanted, from, found, bytes = {}, ARGV[2], {}, 0
local most, limit, is_whole = tonumber(ARGV[5]), tonumber(ARGV[6]), not ARGV[8]
for i = 8, #ARGV do
  wanted[ARGV[i]] = true
end
-- The size of an entry is not known before it is read: one at a time.
local function read()
  if ARGV[1] ~= 'XPENDING' then
    return redis.call(ARGV[1], KEYS[1], from, ARGV[3], 'COUNT', 1)[1]
  end
  local held = redis.call('XPENDING', KEYS[1], ARGV[4], from, ARGV[3], 1)[1]
  return held and (redis.call('XRANGE', KEYS[1], held[1], held[1])[1] or { held[1], {} })
end
while #found < most and bytes < limit do
  local entry = read()
  if not entry then
    break
  end
  local fields, kept, seen = entry[2], {}, {}
  -- A reader keeps about 96 bytes for each name and value beside its own bytes.
  bytes = bytes + 96 * #fields
  for i = 1, #fields do
    bytes = bytes + #fields[i]
  end
  for i = 1, is_whole and 0 or #fields, 2 do
    local name = string.lower(string.sub(fields[i], 1, 64))
    if wanted[name] and not seen[name] then
      seen[name] = true
      kept[#kept + 1] = name
      kept[#kept + 1] = string.sub(fields[i + 1], 1, tonumber(ARGV[7]))
    end
  end
  found[#found + 1] = is_whole and entry or { entry[1], kept }
  -- Redis refuses an interval behind the greatest id there is.
  if entry[1] == ARGV[3] then
    break
  end
  from = '(' .. entry[1]
end
return found
