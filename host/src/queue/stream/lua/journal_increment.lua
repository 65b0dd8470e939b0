-- Add to the number of a key, and record the sum in the journal of a delivery.
--
-- KEYS  1 stream, 2 journals of the group (sorted set, see `journals`), 3 journal of the delivery (hash), 4 the key
-- ARGV  1 group, 2 consumer (self), 3 mark of the group, 4 id, 5 number of the record, 6 greatest number that is used
--       elsewhere (in the entry), 7 the record without the sum, 8 how many bytes to reserve, 9 how many bytes the journal may
--       have, 10 the same for all journals of the queue, 11 how many records a journal may have, 12 how much to add
-- reply as `journal_intend`: { word, record }; or { failed, <why> }: nothing is added
--
-- Atomicity: the owner and the room are looked at first, then the sum and its record are written; only the sum can fail
-- (no number, wrong type, out of memory).
-- A repeat finds its own record: known, and nothing is added.
local word, found = obstacle(ARGV[4]), ''
if not word then
  word, found = no_record(KEYS[2], KEYS[3], 4)
end
if word then
  return { word, found }
end
local sum = redis.pcall('INCRBY', KEYS[4], ARGV[12])
if type(sum) == 'table' then
  return { 'failed', sum['err'] }
end
-- As Redis writes it: Lua has 53 bits.
local body = string.sub(ARGV[7], 9) .. redis.call('GET', KEYS[4])
local record = string.format('%08d', #body + 8) .. body
write_new(KEYS[2], KEYS[3], 4, record, #body + 8)
return { 'known', record }
