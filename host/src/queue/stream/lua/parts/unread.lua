-- Part, after `ids` and `delivered`: whether an entry of the stream KEYS[1] is behind the last one that the
-- group ARGV[1] has handed out.
local last
local function is_unread(id)
  last = last or delivered()
  return less(last, id)
end
