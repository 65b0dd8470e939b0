-- Let messages start, as their limits allow: each takes from all of its limits, or from none.
--
-- KEYS  the limits without a key; then, if one has a key, that limit for each message
--       (of starts, strings: "<when all starts are paid for> <when that was written>", in microseconds of this server's clock;
--       of attempts at once, hashes: by host "<number> <permits> <when that was written> <lease> <messages that wait>
--       <since when>", in milliseconds)
-- ARGV  1 how many limits have no key, 2 how many have one (0 or 1), 3 whether starts may be reserved (1 or 0), 4 this host,
--       5 the number of its request, 6 how many permits it has, 7 their lease, ms; then of each limit: starts, the time in
--       which so many may happen, microseconds, the most at once (of attempts at once: how many, 0, 0); then of each message:
--       its units by each limit (at most the most at once), when its start was reserved for, epoch ms ('' = it was not)
-- reply { of each message: microseconds (0 = it may start now; more = its start is reserved for then; less = it waits as
--       long, without the sign), the number of the limit that says so; at the end the time, in microseconds }
--
-- Where a message waits, those behind it wait as well. One whose limit with a key is used up does not, if its start may be
-- reserved. A start that was reserved is not paid again, if it is not missed by more than a second. Of a limit without a key a
-- start is not lost that comes late by 30 ms, or by one period if that is shorter: its host waited for it, and had to ask.
-- A host says how many permits it has, so they are what it says, and what it gets now; without a word of it they are free when
-- their lease ends. A request that comes behind a later one of its host says nothing, and gets nothing. A host that has waited
-- for a second, and has less than its share, comes first: what is free is kept for it, while it asks.
-- A clock that was set back moves the times back with it. Nothing lies farther ahead than the limits without a key allow.
-- Atomicity: all limits are read before the first write. It adds the memory of a limit that is not paid for, until it is; so it
-- runs out of memory as well: a full server can be drained.
-- A repeat takes, and reserves, once more: fewer start, never more. The permits are the same.
local host, number, held, lease = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local at = clock[1] * 1000000 + clock[2]
local plain, keyed, may_reserve = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == '1'
local all = plain + keyed
local limits, paid, changed = {}, {}, {}
local function cost(limit, units)
  local time = units * limit.period
  local rest = time % limit.count
  return (time - rest) / limit.count + (rest > 0 and 1 or 0)
end
for i = 1, all do
  local limit = { count = tonumber(ARGV[3 * i + 5]), period = tonumber(ARGV[3 * i + 6]) }
  limit.slack = cost(limit, tonumber(ARGV[3 * i + 7]))
  limit.grace = i <= plain and math.min(30000, cost(limit, 1)) or 0
  limits[i] = limit
end
local is_late = false
-- How many permits are free for this host, and what is written of the others.
local function read_permits(limit, key)
  local all, others, hosts, since = redis.call('HGETALL', key), {}, 1, now
  limit.room, limit.taken, limit.waiting, limit.lease = limit.count - held, 0, 0, lease
  limit.ended, limit.moved = {}, {}
  for i = 1, #all, 2 do
    local n, has, written, lasts, wants, from = string.match(all[i + 1], '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
    local other = { has = tonumber(has), wants = tonumber(wants), name = all[i] }
    other.since, other.written = math.min(now, tonumber(from)), math.min(now, tonumber(written))
    if all[i] == host then
      is_late = is_late or tonumber(n) > number
      since = other.wants > 0 and other.since or now
    elseif other.written + lasts <= now then
      limit.ended[#limit.ended + 1] = all[i]
    else
      others[#others + 1], hosts = other, hosts + 1
      limit.room, limit.lease = limit.room - other.has, math.max(limit.lease, tonumber(lasts))
      if tonumber(written) > now then
        limit.moved[#limit.moved + 1] = all[i]
        limit.moved[#limit.moved + 1] = table.concat({ n, has, text(now), lasts, wants, text(other.since) }, ' ')
      end
    end
  end
  limit.since, limit.share = since, math.max(1, math.floor(limit.count / hosts))
  limit.pause = math.min(1000, math.max(20, 10 * hosts)) * 1000
  local is_first = now - since >= 1000 and held < limit.share
  for _, other in ipairs(others) do
    local waits = other.wants > 0 and now - other.since >= 1000 and now - other.written < 2000
    local is_before = other.since < since or other.since == since and other.name < host
    if waits and other.has < limit.share and (is_before or not is_first) then
      limit.room = limit.room - math.min(other.wants, limit.share - other.has)
    end
  end
end
for i, key in ipairs(KEYS) do
  if i <= plain and limits[i].period == 0 then
    read_permits(limits[i], key)
  elseif not paid[key] then
    local text = redis.call('GET', key) or ''
    local until_then, written = string.match(text, '^(%d+) (%d+)$')
    local back = math.max(0, (tonumber(written) or 0) - at)
    local kept = (tonumber(until_then) or 0) - back
    if i <= plain and kept > at + limits[i].slack then
      kept, back = at + limits[i].slack, 1
    end
    paid[key] = math.max(at - (i <= plain and limits[i].grace or 0), kept)
    -- What was moved is written, or it would be moved along with the clock, and never come.
    changed[key] = back > 0 or nil
  end
end
-- How long a message must wait that is not paid for.
local function wait_for(limit, key, units)
  if limit.room then
    return limit.room > 0 and 0 or limit.pause
  end
  return math.max(0, paid[key] + cost(limit, units) - limit.slack - at)
end
local function pay(limit, key, units)
  if limit.room then
    limit.room, limit.taken = limit.room - 1, limit.taken + 1
    return
  end
  paid[key] = paid[key] + cost(limit, units)
  changed[key] = true
end
local reply, wait, by = {}, is_late and -20000 or 0, 0
local count = (#ARGV - 7 - 3 * all) / (all + 1)
for m = 1, count do
  local first = 7 + 3 * all + (m - 1) * (all + 1)
  local function units(i)
    return tonumber(ARGV[first + i])
  end
  for i = 1, wait == 0 and plain or 0 do
    local own = wait_for(limits[i], KEYS[i], units(i))
    if own > -wait then
      wait, by = -own, i
    end
  end
  local later = 0
  if keyed == 1 and wait == 0 then
    local limit, key, reserved = limits[all], KEYS[plain + m], tonumber(ARGV[first + all + 1])
    local is_kept = reserved and math.abs(now - reserved) <= 1000
    if not is_kept then
      later = wait_for(limit, key, units(all))
      if later > 0 and not may_reserve then
        wait, by, later = -later, all, 0
      else
        pay(limit, key, units(all))
      end
    end
  end
  if wait == 0 and later == 0 then
    for i = 1, plain do
      pay(limits[i], KEYS[i], units(i))
    end
  end
  if by > 0 and limits[by].room then
    limits[by].waiting = limits[by].waiting + 1
  end
  reply[#reply + 1] = later > 0 and later or wait
  reply[#reply + 1] = later > 0 and all or by
end
for i = 1, is_late and 0 or plain do
  local limit, key = limits[i], KEYS[i]
  if limit.room then
    local has = held + limit.taken
    local waits = limit.waiting > 0
    if #limit.ended > 0 then
      redis.call('HDEL', key, unpack(limit.ended))
    end
    if has > 0 or waits then
      local since = waits and has < limit.share and limit.since or now
      local line = { text(number), text(has), text(now), text(lease), text(limit.waiting), text(since) }
      redis.call('HSET', key, host, table.concat(line, ' '), unpack(limit.moved))
      redis.call('PEXPIRE', key, text(limit.lease))
    else
      redis.call('HDEL', key, host)
    end
  end
end
for key in pairs(changed) do
  redis.call('SET', key, text(paid[key]) .. ' ' .. text(at), 'PX', text(math.ceil((paid[key] - at) / 1000) + 1000))
end
reply[#reply + 1] = at
return reply
