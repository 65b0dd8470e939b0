-- Part: ids of stream entries. They are compared as decimal texts, because sequence numbers have 64
-- bits and Lua's numbers 53.
local function split(id)
  return string.match(id, '^(%d+)-(%d+)$')
end
local function less(a, b)
  local a1, a2 = split(a)
  local b1, b2 = split(b)
  if #a1 ~= #b1 then return #a1 < #b1 end
  if a1 ~= b1 then return a1 < b1 end
  if #a2 ~= #b2 then return #a2 < #b2 end
  return a2 < b2
end
