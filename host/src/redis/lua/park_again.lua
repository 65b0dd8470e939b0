-- Park again, in a group that was made again, some of the deliveries that were parked before.
--
-- KEYS  1 stream, 2 parked deliveries (sorted set: id -> due)
-- ARGV  1 group, 2 consumer (self), 3 mark of the group, 4 consumer of parked deliveries,
--       5 consumer that says that not all of them are pending, 6 how many to look at,
--       7 how many were looked at, counted from the last one due
-- reply { how many were looked at now (-1 = all are pending), lost: their entries are gone }
--
-- They are parked with one start: their count is lost. Unread entries are read like any others.
-- The first ones due come last: those go while this goes on, and no other one is skipped.
-- Atomicity: only the first command can fail (no group, wrong type), before anything is written. The
-- consumer that says that some are missing goes last.
-- A repeat finds them pending.
if not same_group()[ARGV[5]] then
  return { -1, 0 }
end
local seen, most, lost = tonumber(ARGV[7]), tonumber(ARGV[6]), 0
local page = redis.call('ZRANGE', KEYS[2], -seen - most, -seen - 1)
for _, id in ipairs(page) do
  if #redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1) == 0 and not is_unread(id) then
    local claimed = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[4], 0, id, 'FORCE', 'RETRYCOUNT', 1, 'JUSTID')
    if #claimed == 0 then
      redis.call('ZREM', KEYS[2], id)
      lost = lost + 1
    end
  end
end
if #page < most then
  redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[5])
end
return { #page, lost }
