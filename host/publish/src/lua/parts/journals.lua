-- Part: the journals of messages. `index` is the sorted set of the journals of a group (id -> when it was last written,
-- epoch ms; and '' -> minus the bytes of all of them); '' = the queue has none. A journal is a hash: the number of a record ->
-- how many bytes it takes (8 digits), and the record; `bytes` -> how many bytes all its records take; `last` -> the greatest
-- number; `shared` -> the intents whose call more than one attempt has made (',' after each number, and before the first). It is not among KEYS: it is in the slot of the queue. A list has the group ''.
local function journal_of(index, group, id)
  return string.sub(index, 1, -(#group + 3)) .. ':' .. group .. ':' .. id
end
-- Whether the message has a journal. Most have none, so this is asked once for a call.
local has_journals
local function has_journal(index, id)
  if index == '' then
    return false
  end
  if has_journals == nil then
    has_journals = redis.call('EXISTS', index) == 1
  end
  return has_journals and redis.call('ZSCORE', index, id) ~= false
end
-- The message has left the queue: its journal goes.
local function forget_journal(index, group, id)
  if not has_journal(index, id) then
    return
  end
  local journal = journal_of(index, group, id)
  local bytes = redis.call('HGET', journal, 'bytes')
  redis.call('UNLINK', journal)
  redis.call('ZREM', index, id)
  if redis.call('ZCARD', index) > 1 then
    redis.call('ZINCRBY', index, bytes or 0, '')
  else
    redis.call('UNLINK', index)
  end
end
