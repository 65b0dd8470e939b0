-- Write an intent into the journal of a delivery of a list, before its call is made.
--
-- KEYS  1 processing list (self), 2 journals of the list (sorted set, see `journals`), 3 journal of the message (hash)
-- ARGV  1 entry on the processing list (token .. value; or, of a large one, its token), 2 name of the journal, 3 number of
--       the record, 4 greatest number that is used elsewhere (in the value), 5 the record, 6 how many bytes to reserve, 7 how
--       many bytes the journal may have, 8 the same for all journals of the queue, 9 how many records a journal may have,
--       10 whether the intent is that of an earlier attempt (0 | 1)
-- reply { word, record }; the word is done | gone (the instance does not have it) | stale (the journal has changed: another
--       host has written to it) | full | queue-full | known (there is a record with this number: the second value)
--
-- A record that is there already is read, and its owner is checked: so a call is made again. Its intent is marked.
-- Atomicity: the owner and the room are looked at before the first write; only that can fail (wrong type, out of memory).
-- A repeat finds its own record: known.
local word, found = not find(KEYS[1], { ARGV[1] })(ARGV[1]) and 'gone' or nil, ''
if not word then
  word, found = no_record(KEYS[2], KEYS[3], 2)
end
if word then
  if word == 'known' then
    share(KEYS[3], 2, found)
  end
  return { word, found }
end
write_new(KEYS[2], KEYS[3], 2, ARGV[5], tonumber(ARGV[6]))
return { 'done', '' }
