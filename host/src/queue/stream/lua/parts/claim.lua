-- Part, after `time`, `kept` and `held`: claim deliveries of the stream KEYS[1] and the group ARGV[1] for the consumer ARGV[2], by one command.
-- They have the same count, and keep it. Each of `owned` is a reply of XPENDING; each claim is { id, count,
-- idle ms, fields, holds, time of the first hold }. Returns the ids of those that came behind `limit` bytes of fields: the consumer has them, and
-- they are not among the claims.
-- The parked deliveries are the last of KEYS. How often deliveries were held is asked for before the first write.
local claims, trimmed, bytes, set = {}, 0, 0, held_set(KEYS[#KEYS])
held(set, '')
local function claim(owned, limit, ...)
  local command, by_id, beyond = { 'XCLAIM', KEYS[1], ARGV[1], ARGV[2], '0' }, {}, {}
  for _, delivery in ipairs(owned) do
    command[#command + 1] = delivery[1]
    by_id[delivery[1]] = delivery
  end
  for _, option in ipairs({ 'RETRYCOUNT', owned[1][4], ... }) do
    command[#command + 1] = option
  end
  trimmed = trimmed + #owned
  for _, entry in ipairs(redis.call(unpack(command))) do
    local delivery = entry and by_id[entry[1]]
    if delivery then
      trimmed = trimmed - 1
      if bytes >= limit then
        beyond[#beyond + 1] = entry[1]
      else
        claims[#claims + 1] = { entry[1], delivery[4], delivery[3], entry[2], held(set, entry[1]) }
        for _, part in ipairs(entry[2]) do
          -- A host keeps about 96 bytes for each beside its own bytes.
          bytes = bytes + #part + 96
        end
      end
    end
  end
  return beyond
end
-- A consumer whose delivery another one has taken may believe that it still has it: the clock of the server may have jumped.
-- The note says in the set of late acknowledgements that such a consumer must not bring the delivery back (see `readopt`).
-- ARGV[3] is the mark of the group.
local function note_taken(late, taken, consumer, keep, most)
  note(late, taken[1] .. ' ' .. ARGV[3] .. ' ' .. consumer, keep, most)
end
-- This consumer has the claims again.
local function forget_taken(late)
  local notes = { 'ZREM', late }
  if #claims > 0 and redis.pcall('EXISTS', late) == 1 then
    for _, taken in ipairs(claims) do
      notes[#notes + 1] = taken[1] .. ' ' .. ARGV[3] .. ' ' .. ARGV[2]
    end
    redis.pcall(unpack(notes))
  end
end
-- The records of the claims in the set of parked deliveries come up after `ms` milliseconds. They stay until a
-- renewal, a start or a settlement shows that the host knows the claim. If the answer is lost, and the group or the
-- consumer with it, only the record knows the message. Orphans have one only if they were parked, and have not started
-- since ('XX'): one that comes back from its record is no suspect.
local function keep_records(parked, ms, ...)
  local records = { 'ZADD', parked, ... }
  local least = #records
  for _, taken in ipairs(claims) do
    records[#records + 1] = due_time(now + ms, taken[2], TAKEN)
    records[#records + 1] = taken[1]
  end
  if #records > least then
    redis.pcall(unpack(records))
  end
end
