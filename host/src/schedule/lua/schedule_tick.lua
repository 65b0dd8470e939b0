-- Publish the ticks of a schedule that are due, and set the next one.
--
-- KEYS  1 schedules (hash), 2 ticks (sorted set), 3 the queue, 4 its delayed messages
-- ARGV  1 member of the ticks: the name, or `run ` and the name, 2 name, 3 definition, 4 the tick that is due, 5 the next
--       one ('' = none), 6 after when that is, epoch ms, 7 zone data, 8 how many ticks are missed, 9 the group in which the
--       message before must be settled ('' = it need not be), then of each tick: its time, its id, and its write
-- reply 'moved' = it is not due any more | 'changed' = the definition is another one | 'early' = the clock of the server
--       was set back | { published, skipped, '' or why the next one is refused }
--
-- Atomicity: it compares the tick, publishes and sets the next in one step, and finds every known cause of a refusal
-- before the first write. Where a write is refused all the same, the next tick is that one.
-- A repeat finds another next tick, and publishes nothing.
local member, name = ARGV[1], ARGV[2]
local due = redis.call('ZSCORE', KEYS[2], member)
if not due or tonumber(due) ~= tonumber(ARGV[4]) then
  return 'moved'
end
if redis.call('HGET', KEYS[1], 'd:' .. name) ~= ARGV[3] then
  return 'changed'
end
local ticks, at = {}, 10
while at <= #ARGV do
  local tick = { time = tonumber(ARGV[at]), id = ARGV[at + 1] }
  tick.writes, at = writes(at + 2)
  if tick.time > now then
    return 'early'
  end
  local refused = refusal(tick.writes, 0)
  if refused then
    return { 0, 0, refused }
  end
  ticks[#ticks + 1] = tick
end
-- Whether an entry of the stream is unread, or pending, in the group.
local function is_open(entry)
  local there = #redis.call('XRANGE', KEYS[3], entry, entry) > 0
  local groups = redis.pcall('XINFO', 'GROUPS', KEYS[3])
  for i = 1, groups.err and 0 or #groups do
    local info = {}
    for j = 1, #groups[i], 2 do
      info[groups[i][j]] = groups[i][j + 1]
    end
    if info.name == ARGV[9] then
      local function parts(id)
        local ms, number = id:match('^(%d+)-(%d+)$')
        return tonumber(ms), tonumber(number)
      end
      local ms, number = parts(entry)
      local last_ms, last_number = parts(info['last-delivered-id'])
      if ms > last_ms or (ms == last_ms and number > last_number) then
        return there
      end
      return #redis.call('XPENDING', KEYS[3], ARGV[9], entry, entry, 1) > 0
    end
  end
  return there
end
local record = record_of(name)
local function count(what, more)
  if more > 0 then
    record[what] = (record[what] or 0) + more
  end
end
local published, skipped, why, next_tick, base = 0, 0, '', ARGV[5], ARGV[6]
for i, tick in ipairs(ticks) do
  if ARGV[9] ~= '' and record.entry and is_open(record.entry) then
    skipped = skipped + 1
  else
    local reply = redis.pcall(unpack(tick.writes[1].command))
    if type(reply) == 'table' and reply.err then
      why = '-' .. reply.err
      next_tick, base = text(tick.time), text(ticks[i - 1] and ticks[i - 1].time or record.base or 0)
      break
    end
    published = published + 1
    record.tick, record.id, record.at = tick.time, tick.id, now
    record.entry = type(reply) == 'string' and reply or nil
  end
end
if why ~= '' and published + skipped == 0 then
  return { 0, 0, why }
end
count('published', published)
count('skipped', skipped)
count('missed', why == '' and tonumber(ARGV[8]) or 0)
if member == name then
  record.base = tonumber(base)
else
  record.run = { tonumber(ARGV[4]), record.id }
end
keep(name, record)
if next_tick == '' then
  redis.call('ZREM', KEYS[2], member)
else
  redis.call('ZADD', KEYS[2], next_tick, member)
  note_zones(ARGV[7])
end
return { published, skipped, why }
