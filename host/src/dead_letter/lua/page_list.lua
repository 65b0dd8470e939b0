-- Read a stretch of a dead-letter queue that is a list, oldest first.
--
-- KEYS  1 dead-letter queue (list: pushed on the left, so that the oldest are on the right)
-- ARGV  1 how many of the oldest to leave out, 2 at most how many, 3 after how many bytes to stop, but not
--       before the second value: a walk reads the last value that it passed again,
--       4... values that mark the end, newest first: the first of them that is there is the last
--       one that is read
-- reply { values, how many are left before the end (-1 = no mark is there, all were meant) }
--
-- Atomicity: reads only, and a bounded stretch. Of equal values the newest marks the end.
-- A repeat reads again.
local length, newest, marked = redis.call('LLEN', KEYS[1]), 0, false
for i = 4, #ARGV do
  local at = redis.call('LPOS', KEYS[1], ARGV[i])
  if at then
    newest, marked = at, true
    break
  end
end
local passed, most, limit = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local room = math.max(0, length - newest - passed)
local values, bytes, step = {}, 0, 1
while #values < math.min(room, most) and (bytes < limit or #values < 2) do
  local from = passed + #values + 1
  local count = math.min(step, room - #values, most - #values)
  local page = redis.call('LRANGE', KEYS[1], -(from + count - 1), -from)
  if #page == 0 then
    break
  end
  for i = #page, 1, -1 do
    bytes = bytes + #page[i]
    values[#values + 1] = page[i]
  end
  step = next_step(limit, #values, bytes)
end
return { values, marked and room - #values or -1 }
