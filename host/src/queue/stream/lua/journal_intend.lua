-- Write an intent into the journal of a delivery, before its call is made.
--
-- KEYS  1 stream, 2 journals of the group (sorted set, see `journals`), 3 journal of the delivery (hash)
-- ARGV  1 group, 2 consumer (self), 3 mark of the group, 4 id, 5 number of the record, 6 greatest number that is used
--       elsewhere (in the entry), 7 the record, 8 how many bytes to reserve, 9 how many bytes the journal may have, 10 the
--       same for all journals of the queue, 11 how many records a journal may have, 12 whether the intent is that of an earlier attempt (0 | 1)
-- reply { word, record }; the word is done | gone | stolen | stale (the journal has changed: another host has written
--       to it) | full | queue-full | known (there is a record with this number: the second value)
--
-- A record that is there already is read, and its owner is checked: so a call is made again. Its intent is marked.
-- Atomicity: the owner and the room are looked at before the first write; only that can fail (wrong type, out of memory).
-- A repeat finds its own record: known.
local word, found = obstacle(ARGV[4]), ''
if not word then
  word, found = no_record(KEYS[2], KEYS[3], 4)
end
if word then
  if word == 'known' then
    share(KEYS[3], 4, found)
  end
  return { word, found }
end
write_new(KEYS[2], KEYS[3], 4, ARGV[7], tonumber(ARGV[8]))
return { 'done', '' }
