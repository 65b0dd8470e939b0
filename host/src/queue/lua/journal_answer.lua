-- Write the answer to a call in the place of its intent, or remove the intent: whichever host owns the delivery by now.
--
-- KEYS  1 journals of the group (sorted set, see `journals`), 2 journal of the delivery (hash)
-- ARGV  1 id of the delivery, 2 number of the record, 3 its intent, 4 the answer ('' = remove the intent), 5 how many bytes
--       the answer takes, 6 how many bytes the journal may have, 7 the same for all journals of the queue
-- reply { word, record }; the word is done | full | queue-full | other (the record is another one: the second value) | gone
--       | shared (another attempt has made the call as well: the intent is not removed)
--
-- Its bytes were reserved, so it is written also when the server is out of memory.
-- Atomicity: the room is looked at before the first write, which can fail (wrong type).
-- A repeat finds the answer: other, with the same record; or nothing: gone.
local found = redis.call('HGET', KEYS[2], ARGV[2])
if not found then
  return { 'gone', '' }
elseif found ~= ARGV[3] then
  return { 'other', found }
end
if ARGV[4] == '' and string.find(redis.call('HGET', KEYS[2], 'shared') or '', ',' .. ARGV[2] .. ',', 1, true) then
  return { 'shared', '' }
end
local more = tonumber(ARGV[5]) - tonumber(string.sub(found, 1, 8))
local word = more > 0 and no_room(KEYS[1], KEYS[2], more, tonumber(ARGV[6]), tonumber(ARGV[7]))
if word then
  return { word, '' }
end
if ARGV[4] == '' then
  redis.call('HDEL', KEYS[2], ARGV[2])
  redis.call('HINCRBY', KEYS[2], 'bytes', more)
  redis.call('ZINCRBY', KEYS[1], -more, '')
else
  write_record(KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[4], more)
end
return { 'done', '' }
