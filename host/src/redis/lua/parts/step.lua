-- Part: how many values to read next. The size of a value is unknown before it is read: large values
-- are read one by one, and small ones 32 at once, or as many as the caller says.
local function next_step(limit, count, bytes, most)
  return math.max(1, math.min(math.max(32, most or 0), math.floor(limit / 8 * count / (bytes + 1))))
end
