-- Read a stretch of a list, or of a sorted set: what has places, which move.
--
-- KEYS  1 list or sorted set
-- ARGV  1 'right' = a list from its right end (pushed on the left, so that the oldest come first) | 'left' = from its left end |
--       'set' = a sorted set, least scores first, 2 how many to leave out, 3 at most how many, 4 after how many bytes to stop, with
--       marks not before the second value: such a walk reads the last value that it passed again,
--       5... values that mark the end of 'right', newest first: the first of them that is there is the last one that is read
-- reply { values, of a set each with its score behind it, how many are left before the end (-1 = no mark is there, all were meant) }
--
-- Atomicity: reads only, and a bounded stretch. Of equal values the newest marks the end.
-- A repeat reads again.
local how, marked, newest = ARGV[1], false, 0
for i = 5, #ARGV do
  local at = redis.call('LPOS', KEYS[1], ARGV[i])
  if at then
    newest, marked = at, true
    break
  end
end
local passed, most, limit = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local length = redis.call(how == 'set' and 'ZCARD' or 'LLEN', KEYS[1])
local room = math.max(0, length - newest - passed)
local values, found, bytes, step, least = {}, 0, 0, 1, #ARGV > 4 and 2 or 1
while found < math.min(room, most) and (bytes < limit or found < least) do
  local from = passed + found
  local count = math.min(step, room - found, most - found)
  local page, first, last, by = nil, 1, 0, 1
  if how == 'right' then
    page = redis.call('LRANGE', KEYS[1], -(from + count), -(from + 1))
    first, last, by = #page, 1, -1
  elseif how == 'left' then
    page = redis.call('LRANGE', KEYS[1], from, from + count - 1)
    last = #page
  else
    page = redis.call('ZRANGE', KEYS[1], from, from + count - 1, 'WITHSCORES')
    last, by = #page, 2
  end
  if #page == 0 then
    break
  end
  for i = first, last, by do
    -- The next stretch has the rest.
    if bytes >= limit and found >= least then
      break
    end
    -- A reader keeps about 96 bytes for each value beside its own bytes.
    bytes = bytes + #page[i] + 96
    found = found + 1
    values[#values + 1] = page[i]
    if how == 'set' then
      values[#values + 1] = page[i + 1]
    end
  end
  -- Larger ones may come next.
  step = math.min(4, next_step(limit, found, bytes))
end
return { values, marked and room - found or -1 }
