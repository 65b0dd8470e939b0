-- Part, after `info`: the last entry of the stream KEYS[1] that the group ARGV[1] has handed out; nil without the
-- group.
local function delivered()
  for _, info in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    local group = named(info)
    if group['name'] == ARGV[1] then
      return group['last-delivered-id']
    end
  end
  return nil
end
