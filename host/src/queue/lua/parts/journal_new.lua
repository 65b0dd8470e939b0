-- Part, after `journal_room`: why no new record can be written for the delivery that this host owns; in ARGV from `at` on: its
-- id, number of the record, greatest number that is used elsewhere (in the message), the record, how many bytes to reserve,
-- how many bytes the journal may have, the same for all journals of the queue, how many records a journal may have.
-- nil: it can be written. Else a word, and the record that has its number.
local function no_record(index, journal, at)
  local number, base = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local found = redis.call('HGET', journal, ARGV[at + 1])
  if found then
    return 'known', found
  end
  -- No number is used twice: another host has written to the journal.
  if number <= (tonumber(redis.call('HGET', journal, 'last')) or 0) and number > base then
    return 'stale', ''
  end
  -- Three fields are no records.
  if redis.call('HLEN', journal) >= tonumber(ARGV[at + 7]) + 3 then
    return 'full', ''
  end
  return no_room(index, journal, tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6])), ''
end
-- The intent stands, and another attempt makes its call as well: only an answer takes its place from now on.
local function share(journal, at, found)
  local shared = redis.call('HGET', journal, 'shared') or ','
  if ARGV[at + 8] == '1' and found == ARGV[at + 3] and not string.find(shared, ',' .. ARGV[at + 1] .. ',', 1, true) then
    redis.call('HSET', journal, 'shared', shared .. ARGV[at + 1] .. ',')
  end
end
local function write_new(index, journal, at, record, bytes)
  write_record(index, journal, ARGV[at], ARGV[at + 1], record, bytes)
  local last = tonumber(redis.call('HGET', journal, 'last')) or 0
  redis.call('HSET', journal, 'last', text(math.max(last, tonumber(ARGV[at + 1]))))
end
