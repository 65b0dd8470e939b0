-- Park again some of the deliveries that have a record and are not pending: the group was made again, or
-- the consumer of parked deliveries was deleted.
--
-- KEYS  1 stream, 2 parked deliveries (sorted set: id -> due)
-- ARGV  1 group, 2 consumer (self), 3 mark of the group, 4 consumer of parked deliveries,
--       5 consumer that says that not all of them are pending, 6 how many to look at,
--       7 how many were looked at, counted from the last one due
-- reply { how many were looked at now (-1 = all are pending), lost: their entries are gone, how many are pending
--       again, how many entries had been added to the stream at least }
--
-- They keep the count that the record has. Unread entries are read like any others.
-- The first ones due come last: those go while this goes on, and no other one is skipped.
-- Atomicity: only the first commands can fail (no group, wrong type), before anything is written. The
-- consumer that says that some are missing goes last.
-- A repeat finds them pending.
local consumers, added = same_group(), 0
for _, info in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local group = named(info)
  if group['name'] == ARGV[1] then
    -- Redis may not know.
    added = (group['entries-read'] or 0) + (group['entries-read'] and group['lag'] or 0)
  end
end
if not consumers[ARGV[5]] then
  if consumers[ARGV[4]] or redis.call('ZCARD', KEYS[2]) == 0 then
    return { -1, 0, 0, added }
  end
  make_consumer(ARGV[5])
end
local seen, most, lost, back = tonumber(ARGV[7]), tonumber(ARGV[6]), 0, 0
local page = redis.call('ZRANGE', KEYS[2], -seen - most, -seen - 1, 'WITHSCORES')
for i = 1, #page, 2 do
  local id, count = page[i], kept(page[i + 1])
  if #redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1) == 0 and not is_unread(id) then
    local claimed = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[4], 0, id, 'FORCE', 'RETRYCOUNT', count, 'JUSTID')
    if #claimed == 0 then
      redis.call('ZREM', KEYS[2], id)
      lost = lost + 1
    else
      back = back + 1
    end
  end
end
if #page < 2 * most then
  redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[5])
end
return { #page / 2, lost, back, added }
