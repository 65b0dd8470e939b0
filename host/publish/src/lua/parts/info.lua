-- Part: one reply of XINFO as a table.
local function named(info)
  local values = {}
  for i = 1, #info, 2 do
    values[info[i]] = info[i + 1]
  end
  return values
end
