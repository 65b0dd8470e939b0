-- Part, after `time` and `journals`: room for `bytes` more bytes in the journal of a message, and the bytes themselves.
-- 'full' = the journal has `most` bytes, 'queue-full' = those of the queue have `most_of_all`.
local function no_room(index, journal, bytes, most, most_of_all)
  if (tonumber(redis.call('HGET', journal, 'bytes')) or 0) + bytes > most then
    return 'full'
  end
  if bytes - (tonumber(redis.call('ZSCORE', index, '') or nil) or 0) > most_of_all then
    return 'queue-full'
  end
end
local function write_record(index, journal, id, number, record, bytes)
  redis.call('HSET', journal, number, record)
  redis.call('HINCRBY', journal, 'bytes', bytes)
  redis.call('ZADD', index, text(now), id)
  redis.call('ZINCRBY', index, -bytes, '')
end
