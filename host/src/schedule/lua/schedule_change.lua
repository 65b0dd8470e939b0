-- Remove, pause, resume or run a schedule.
--
-- KEYS  1 schedules (hash), 2 ticks (sorted set)
-- ARGV  1 name, 2 `remove` | `pause` | `resume` | `run`; of `resume`: 3 the definition that the next tick was computed
--       from, 4 zone data, 5 after when the next tick is, 6 the next tick; of `run`: 3 a token of this call
-- reply 'unknown' = there is no such schedule | 'changed' = the definition is another one | 'done' | of `run`: when it was
--       asked for, epoch ms, which is its tick
--
-- Atomicity: all of it, or nothing. A repeat of `run` with the same token runs nothing more; the others say the same again.
local name, verb = ARGV[1], ARGV[2]
local definition = redis.call('HGET', KEYS[1], 'd:' .. name)
if not definition then
  return 'unknown'
end
local record = record_of(name)
if verb == 'remove' then
  remove(name)
  tidy()
elseif verb == 'pause' then
  record.paused = true
  keep(name, record)
  redis.call('ZREM', KEYS[2], name)
elseif verb == 'resume' then
  if definition ~= ARGV[3] then
    return 'changed'
  end
  if record.paused then
    record.paused = nil
    record.base = tonumber(ARGV[5])
    keep(name, record)
    redis.call('ZADD', KEYS[2], ARGV[6], name)
    note_zones(ARGV[4])
  end
elseif record.token == ARGV[3] then
  return record.asked
else
  record.token, record.asked = ARGV[3], now
  keep(name, record)
  redis.call('ZADD', KEYS[2], text(now), 'run ' .. name)
  return now
end
return 'done'
