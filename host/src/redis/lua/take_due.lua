-- Take back parked deliveries that are due, with the count they kept.
--
-- KEYS  1 stream, 2 parked deliveries (sorted set: id -> due, epoch ms by this server's clock)
-- ARGV  1 group, 2 consumer (self), 3 mark of the group, 4 consumer of parked deliveries,
--       5 consumer that says that not all of them are pending, 6 at most how many,
--       7 after how many bytes of fields to stop
-- reply { claims, trimmed, ms until the next is due (-1 = none) }
--
-- A record without a pending delivery was parked in an earlier group, or its delivery was settled late.
-- While the group still lacks deliveries of an earlier one, it is claimed with one start: its count is
-- lost. Unread entries are read like any others.
-- Atomicity: each is claimed before its record goes. A record of a delivery that is not parked goes as
-- well. Fails before the first claim if the group was made again, and a record has no delivery.
-- A repeat takes others. The deliveries of an earlier call are owned by this host, and found as orphans
-- if its reply was lost.
local limit, ids, parked = tonumber(ARGV[7]), due(KEYS[2], ARGV[6]), {}
look(ids, ARGV[4])
for i, id in ipairs(ids) do
  local held = pending(id)
  if not held and same_group()[ARGV[5]] and not is_unread(id) then
    held = { id, ARGV[4], 0, 1, 'FORCE' }
  end
  parked[i] = held and held[2] == ARGV[4] and held
end
local i, back, counts = 1, {}, {}
while i <= #ids and bytes < limit do
  -- Those that follow each other and are alike are claimed by one command.
  local most, alike = next_step(limit, #claims, bytes), {}
  while i <= #ids and #alike < most do
    local held, first = parked[i], alike[1]
    if held and first and (held[4] ~= first[4] or held[5] ~= first[5]) then
      break
    end
    alike[#alike + 1] = held or nil
    i = i + 1
  end
  if #alike > 0 then
    back = claim(alike, limit, alike[1][5])
    counts = { alike[1][4] }
  end
end
-- How large they are shows only when they are claimed: what is beyond the bytes is parked again, and still due.
local is_due = {}
for j, id in ipairs(back) do
  is_due[id], counts[j] = true, counts[1]
end
hold(ARGV[4], back, {}, counts)
local records = { 'ZREM', KEYS[2] }
for j = 1, i - 1 do
  records[#records + 1] = not is_due[ids[j]] and ids[j] or nil
end
if #records > 2 then
  redis.call(unpack(records))
end
return { claims, trimmed, wait(KEYS[2]) }
