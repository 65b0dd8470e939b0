-- Park deliveries: no host owns them until they are due. Each keeps a count.
--
-- KEYS  1 stream, 2 fences (sorted set: consumer -> number of a call),
--       3 parked deliveries (sorted set: id -> due, epoch ms by this server's clock)
-- ARGV  1 group, 2 consumer (self), 3 mark of the group, 4 number of this call, 5 consumer of parked
--       deliveries, 6 consumer that says that not all of them are pending; then per delivery: id, count it must
--       have, count it keeps, delay in ms (with a minus before it: this is a hold, for as long; with a
--       plus: its limits have reserved its start for this time, epoch ms, however late the call is)
-- reply one word per delivery (see `told`): done | gone | trimmed | stolen
--
-- A hold is counted, once: a repeat is not counted. Where another host has parked the delivery with that count, it is
-- not counted.
-- Atomicity: who owns what is asked for all deliveries first: that fails if the group was made again. Then
-- the due times are written, by the only write that can fail (wrong type, out of memory).
-- A repeat finds the delivery parked with the count to keep: done.
local ids, keep = arguments(7, 4), arguments(9, 4)
local words, records, written = obstacles(ids, arguments(8, 4)), { 'ZADD', KEYS[3] }, {}
local set = held_set(KEYS[3])
local holds = { 'ZADD', set }
for i, id in ipairs(ids) do
  local owned = words[i] == 'stolen' and pending(id)
  if owned and owned[2] == ARGV[5] and owned[4] == tonumber(keep[i]) then
    words[i] = 'done'
  elseif not words[i] then
    local delay = ARGV[4 * i + 6]
    local reserved = string.sub(delay, 1, 1) == '+'
    local at = reserved and tonumber(delay) or now + math.abs(tonumber(delay))
    records[#records + 1] = due_time(at, keep[i], nil, reserved)
    records[#records + 1] = id
    written[id] = string.sub(delay, 1, 1) == '-' and { held(set, id) } or {}
  end
end
if #records > 2 then
  look_for_missing(KEYS[3], ARGV[5], ARGV[6])
  redis.call(unpack(records))
end
hold(ARGV[5], ids, words, keep)
for i, id in ipairs(ids) do
  if written[id] and words[i] == 'trimmed' then
    redis.call('ZREM', KEYS[3], id)
  elseif written[id] and written[id][1] then
    local count, since = unpack(written[id])
    holds[#holds + 1] = due_time(count > 0 and since or now, count + 1)
    holds[#holds + 1] = id
  end
end
-- The holds were looked at before the first write.
if #holds > 2 then
  redis.call(unpack(holds))
end
return told(words)
