-- Part: the dead letter ARGV[2] in the queue KEYS[1]: ARGV[1] is 'stream' (it has an id) or 'list' (it
-- is named by its value; of equal values the oldest is meant).
local is_stream = ARGV[1] == 'stream'
local function exists()
  if is_stream then
    return #redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2]) > 0
  end
  return redis.call('LPOS', KEYS[1], ARGV[2], 'RANK', -1)
end
local function remove()
  if is_stream then
    return redis.call('XDEL', KEYS[1], ARGV[2])
  end
  return redis.call('LREM', KEYS[1], -1, ARGV[2])
end
-- The error of a user that may copy but not remove: it would leave one copy for every try.
local function forbidden()
  local removal = is_stream and { 'XDEL', KEYS[1], ARGV[2] } or { 'LREM', KEYS[1], '-1', ARGV[2] }
  if not redis.acl_check_cmd(unpack(removal)) then
    return redis.error_reply('NOPERM this user has no permission to run ' .. removal[1]:lower())
  end
end
