-- Part, after `info` and `ids`: whether an entry of the stream KEYS[1] is behind the last one that the
-- group ARGV[1] has handed out.
local last
local function is_unread(id)
  if not last then
    for _, info in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
      local group = named(info)
      if group['name'] == ARGV[1] then
        last = group['last-delivered-id']
      end
    end
  end
  return less(last, id)
end
