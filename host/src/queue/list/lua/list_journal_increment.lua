-- Add to the number of a key, and record the sum in the journal of a delivery of a list.
--
-- KEYS  1 processing list (self), 2 journals of the list (sorted set, see `journals`), 3 journal of the message (hash), 4 the key
-- ARGV  as `list_journal_intend`, with the record without the sum; then 10 how much to add
-- reply as `list_journal_intend`; or { failed, <why> }: nothing is added
--
-- Atomicity: the owner and the room are looked at first, then the sum and its record are written; only the sum can fail
-- (no number, wrong type, out of memory).
-- A repeat finds its own record: known, and nothing is added.
local word, found = not find(KEYS[1], { ARGV[1] })(ARGV[1]) and 'gone' or nil, ''
if not word then
  word, found = no_record(KEYS[2], KEYS[3], 2)
end
if word then
  return { word, found }
end
local sum = redis.pcall('INCRBY', KEYS[4], ARGV[10])
if type(sum) == 'table' then
  return { 'failed', sum['err'] }
end
-- As Redis writes it: Lua has 53 bits.
local body = string.sub(ARGV[5], 9) .. redis.call('GET', KEYS[4])
local record = string.format('%08d', #body + 8) .. body
write_new(KEYS[2], KEYS[3], 2, record, #body + 8)
return { 'known', record }
