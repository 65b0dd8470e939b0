-- Part: how many values to read next. The size of a value is unknown before it is read: large values
-- are read one by one.
local function next_step(limit, count, bytes)
  return math.max(1, math.min(32, math.floor(limit / 8 * count / (bytes + 1))))
end
