-- Hand out the unread entries of a stream up to one of them, to no host: they are parked, due now, and have not started.
--
-- KEYS  1 stream, 2 parked deliveries (sorted set: id -> due, epoch ms by this server's clock)
-- ARGV  1 group, 2 consumer of parked deliveries, 3 consumer that says that not all of them are pending, 4 the last entry,
--       5 at most how many, 6 after how many bytes of fields to stop
-- reply { how many, 1 if the group has handed out the last entry, or 0 }
--
-- Only this entry of the group is cancelled next; another group needs the entry, so it cannot be deleted.
-- Atomicity: only the first commands can fail (no group, wrong type), before anything is written. An entry without a record
-- counts as due.
-- A repeat goes on.
if not redis.acl_check_cmd('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'STREAMS', KEYS[1], '>') then
  return redis.error_reply('NOPERM this user has no permission to run xreadgroup')
end
local last, moved, bytes = delivered(), 0, 0
if not last then
  return redis.error_reply('NOGROUP the group does not exist')
end
look_for_missing(KEYS[2], ARGV[2], ARGV[3])
while less(last, ARGV[4]) and moved < tonumber(ARGV[5]) and bytes < tonumber(ARGV[6]) do
  local read = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', 1, 'STREAMS', KEYS[1], '>')
  if not read or #read == 0 then
    break
  end
  local entry = read[1][2][1]
  last, moved = entry[1], moved + 1
  for _, part in ipairs(entry[2]) do
    bytes = bytes + #part
  end
  redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, last, 'RETRYCOUNT', 0, 'JUSTID')
  redis.call('ZADD', KEYS[2], due_time(now, 0), last)
end
return { moved, less(last, ARGV[4]) and 0 or 1 }
