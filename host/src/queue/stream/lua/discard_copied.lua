-- Take a delivery off the queue whose copy was written by the command before, in the same transaction: for a
-- copy with more fields than a script can write.
--
-- KEYS  1 stream, 2 dead-letter queue (stream), 3 parked deliveries (sorted set: id -> due)
-- ARGV  1 group, 2 consumer (self), 3 mark of the group, 4 id, 5 count it must have, 6 name and 7 value
--       of a field of the copy, 8 journals of the group (see `journals`; '' = none), 9 the answer to its producer (see `answer`)
-- reply done | gone | stolen; an error if the copy is not there
--
-- Atomicity: nothing comes between the copy and this. Where the copy failed (wrong type), the delivery is as
-- it was.
-- A repeat finds nothing pending: gone. It is not reached, because the host looks before it copies.
local last = named(redis.call('XINFO', 'STREAM', KEYS[2]))['last-entry']
local is_copied = false
for i = 1, last and #last[2] or 0, 2 do
  is_copied = is_copied or (last[2][i] == ARGV[6] and last[2][i + 1] == ARGV[7])
end
if not is_copied then
  return redis.error_reply('ERR the copy was not written')
end
local word = obstacle(ARGV[4], ARGV[5])
if not word then
  redis.call('XACK', KEYS[1], ARGV[1], ARGV[4])
  redis.pcall('ZREM', KEYS[3], ARGV[4])
  forget_held(KEYS[3], { ARGV[4] })
  forget_journal(ARGV[8], ARGV[1], ARGV[4])
  tell(ARGV[9])
end
return word or 'done'
