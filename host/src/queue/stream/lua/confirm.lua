-- This host knows these claims: the records that they were taken from go.
--
-- KEYS  1 stream, 2 parked deliveries (sorted set: id -> due, epoch ms by this server's clock)
-- ARGV  1 group, 2 consumer (self); then per delivery: id, until when its claim might be unknown, epoch ms, as
--       `take_due` says ('' = it was claimed in another way)
-- reply how many records went
--
-- A delivery that was parked again has a record with another time: that one stays. If no time is given, the
-- delivery must still be this host's.
-- Atomicity: only reads can fail (no group, wrong type), before anything is written. It frees memory.
-- A repeat finds no record.
local gone = { 'ZREM', KEYS[2] }
for i = 3, #ARGV, 2 do
  local id, untold = ARGV[i], ARGV[i + 1]
  if untold == '' then
    local held = pending(id)
    if held and held[2] == ARGV[2] then
      gone[#gone + 1] = id
    end
  else
    local score = redis.call('ZSCORE', KEYS[2], id)
    local _, is_taken = kept(score or 0)
    if is_taken and math.floor(tonumber(score)) == tonumber(untold) then
      gone[#gone + 1] = id
    end
  end
end
return #gone > 2 and redis.call(unpack(gone)) or 0
