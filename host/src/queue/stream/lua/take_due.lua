-- Take back parked deliveries that are due, with the count they kept.
--
-- KEYS  1 stream, 2 late acknowledgements (sorted set: id -> when), 3 parked deliveries (sorted set: id -> due, epoch ms
--       by this server's clock)
-- ARGV  1 group, 2 consumer (self), 3 mark of the group, 4 consumer of parked deliveries,
--       5 consumer that says that not all of them are pending, 6 after how long the record of a claim comes up
--       again, ms, 7 at most how many, 8 after how many bytes of fields to stop,
--       9 whether starts are limited (1 or 0)
-- reply { claims, trimmed, ms until the next is due (-1 = none), where starts are limited: the ids of deliveries whose
--       starts were reserved, and for when }
--
-- The record of a claimed delivery stays, for later (see `keep_records`).
-- A record without a pending delivery may be one that was parked in an earlier group, or by a deleted consumer,
-- or taken without an answer: the delivery is made again. Otherwise it was acknowledged by hand.
-- Unread entries are read like any others.
-- Atomicity: each is claimed before its record changes. Fails before the first claim if the group was made
-- again, and a record has no delivery.
-- A repeat takes others. The deliveries of an earlier call are owned by this host, and found as orphans
-- if its reply was lost.
local limit, ids, parked, owned = tonumber(ARGV[8]), due(KEYS[3], ARGV[7]), {}, {}
look(ids, ARGV[4])
for i, id in ipairs(ids) do
  local held = pending(id)
  if not held then
    local consumers = same_group()
    local count, is_taken = kept(redis.call('ZSCORE', KEYS[3], id))
    local is_lost = is_taken or consumers[ARGV[5]] or not consumers[ARGV[4]]
    if is_lost and not is_unread(id) then
      held = { id, ARGV[4], 0, count, 'FORCE' }
    end
  elseif held[2] ~= ARGV[4] then
    owned[id] = held[4]
  end
  parked[i] = held and held[2] == ARGV[4] and held
end
if #ids > 0 then
  look_for_missing(KEYS[3], ARGV[4], ARGV[5])
end
local reserved = {}
for _, id in ipairs(ARGV[9] == '1' and ids or {}) do
  local score = redis.call('ZSCORE', KEYS[3], id)
  if is_reserved(score) then
    reserved[#reserved + 1] = id
    reserved[#reserved + 1] = math.floor(tonumber(score))
  end
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
-- How large they are shows only when they are claimed: entries beyond the bytes are parked again, and still
-- due.
local is_due = {}
for j, id in ipairs(back) do
  is_due[id], counts[j] = true, counts[1]
end
hold(ARGV[4], back, {}, counts)
for _, taken in ipairs(claims) do
  owned[taken[1]] = taken[2]
end
local records, gone = { 'ZADD', KEYS[3] }, { 'ZREM', KEYS[3] }
for j = 1, i - 1 do
  local id = ids[j]
  if owned[id] then
    records[#records + 1] = due_time(now + ARGV[6], owned[id], TAKEN)
    records[#records + 1] = id
  elseif not is_due[id] then
    gone[#gone + 1] = id
  end
end
for _, command in ipairs({ records, gone }) do
  if #command > 2 then
    redis.call(unpack(command))
  end
end
forget_taken(KEYS[2])
return { claims, trimmed, wait(KEYS[3]), reserved }
