-- Write the definitions of schedules: all of one file, or one.
--
-- KEYS  1 schedules (hash: `d:`, `b:`, `r:` and a name -> definition, body, record; `zones`), 2 ticks (sorted set)
-- ARGV  1 the source, 2 `all` = the source has no others, they are removed; `one` = no definition of another source is
--       replaced, 3 zone data of the next ticks, 4 after when they are, epoch ms, 5 the most schedules of a queue, then of
--       each definition: name, definition (JSON), body, next tick
-- reply { names that another source keeps, names that are removed } | 'full'
--
-- A definition with the same `cron` and `zone` keeps its next tick: so a restart loses none. A paused one stays paused.
-- Atomicity: every definition of the source, or none. A repeat writes the same again.
local source, is_all = ARGV[1], ARGV[2] == 'all'
local taken, removed, wanted, more = {}, {}, {}, 0
for at = 6, #ARGV, 4 do
  local name = ARGV[at]
  local old = redis.call('HGET', KEYS[1], 'd:' .. name)
  local owner = old and object(old).source
  if old and owner ~= source and (not is_all or owner == 'cli') then
    taken[#taken + 1] = name
  else
    wanted[name] = at
    more = more + (old and 0 or 1)
  end
end
local known = names()
if is_all then
  for _, name in ipairs(known) do
    if not wanted[name] and object(redis.call('HGET', KEYS[1], 'd:' .. name)).source == source then
      removed[#removed + 1] = name
    end
  end
end
if more > 0 and #known - #removed + more > tonumber(ARGV[5]) then
  return 'full'
end
for _, name in ipairs(removed) do
  remove(name)
end
for name, at in pairs(wanted) do
  local definition, old = object(ARGV[at + 1]), object(redis.call('HGET', KEYS[1], 'd:' .. name))
  redis.call('HSET', KEYS[1], 'd:' .. name, ARGV[at + 1], 'b:' .. name, ARGV[at + 2])
  local record = record_of(name)
  local same = old.cron == definition.cron and old.zone == definition.zone
  if not same or not record.base then
    record.base = tonumber(ARGV[4])
    keep(name, record)
  end
  if not record.paused and not (same and redis.call('ZSCORE', KEYS[2], name)) then
    redis.call('ZADD', KEYS[2], ARGV[at + 3], name)
    note_zones(ARGV[3])
  end
end
tidy()
return { taken, removed }
