-- Take over deliveries that an instance of a reliable list has not renewed for too long.
--
-- KEYS  1 its processing list, 2 its starts (hash), 3 processing list (self), 4 instances,
--       5 terms of the hosts, 6 how many writes of a delivery are done (sorted set), 7 recovery set, if there is
--       one
-- ARGV  1 the instance, 2 instance (self), 3 idle time that makes an orphan, ms (the largest holds), 4 time
--       to live of the recovery set, ms (0 = none); then per orphan: its entry there (token .. value; or, of
--       a large one, its token), starts recorded for it ('' = none), its new entry here: how many bytes at
--       the end of the old one it ends with, and what is before them
-- reply one word per orphan: done | gone (another host took it, settled it or renewed it)
--
-- Compare and move: an entry is taken only while it is there, with the same starts, and idle. So
-- each is taken once, however many instances scan. An instance that was not seen for the idle time is evicted first
-- (score 0): if it lives, and goes without a recovery set, it learns that at its next renewal. Its hash of starts marks
-- what was taken from it, until the instance is forgotten: so, after a lost reply, it can distinguish the deliveries
-- that it has settled itself from those that others took.
-- Atomicity: on the processing list here before it leaves the one there. It only adds the
-- memory of the mark and of new headers, so it runs out of memory as well.
-- A repeat finds them taken: gone; they are on this instance's processing list, and found there.
local least, _, alike = agreed(KEYS[5], ARGV[3], KEYS[7])
local own = ARGV[1] == ARGV[2]
local seen = redis.call('ZSCORE', KEYS[4], ARGV[1])
local lapsed = not seen or now - tonumber(seen) >= least
if not own and lapsed and not (KEYS[7] and alike) then
  redis.call('ZADD', KEYS[4], 0, ARGV[1])
end
-- A user that may copy but not remove would take them twice.
if not redis.acl_check_cmd('LREM', KEYS[1], '-1', '') then
  return redis.error_reply('NOPERM this user has no permission to run lrem')
end
local begun = redis.call('ZCARD', KEYS[6]) > 0
local out, names = {}, {}
for i = 5, #ARGV, 4 do
  names[#names + 1] = ARGV[i]
end
local entry_of = find(KEYS[1], names)
for i = 5, #ARGV, 4 do
  local starts = ARGV[i + 1]
  local token = string.sub(ARGV[i], 1, 16)
  local idle = own or lapsed
  if not own and KEYS[7] then
    local record = redis.call('ZSCORE', KEYS[7], ARGV[1] .. token)
    local lasts = record and now - tonumber(record) < least
    idle = not lasts and (lapsed or record and alike)
  end
  local same = idle and (redis.call('HGET', KEYS[2], token) or '') == starts
  local entry = same and entry_of(ARGV[i])
  if entry then
    local new = joined(ARGV[i + 3], entry, ARGV[i + 2])
    if KEYS[7] then
      redis.call('ZADD', KEYS[7], text(now), ARGV[2] .. string.sub(new, 1, 16))
    end
    local written = begun and redis.call('ZSCORE', KEYS[6], token)
    if written then
      redis.call('ZADD', KEYS[6], written, string.sub(new, 1, 16))
      redis.call('ZREM', KEYS[6], token)
    end
    redis.call('LPUSH', KEYS[3], new)
    redis.call('LREM', KEYS[1], -1, entry)
    if own or not seen then
      redis.call('HDEL', KEYS[2], token)
    else
      redis.call('HSET', KEYS[2], token, 'taken')
    end
    if KEYS[7] then
      redis.call('ZREM', KEYS[7], ARGV[1] .. token)
    end
    out[#out + 1] = 'done'
  else
    out[#out + 1] = 'gone'
  end
end
if KEYS[7] and ARGV[4] ~= '0' then
  redis.call('PEXPIRE', KEYS[7], ARGV[4])
end
return out
