-- Let messages start, as their limits allow: each takes from all of its limits, or from none.
--
-- KEYS  the limits without a key; then, if one has a key, that limit for each message
--       (strings: "<when all starts are paid for> <when that was written>", in microseconds of this server's clock)
-- ARGV  1 how many limits have no key, 2 how many have one (0 or 1), 3 whether starts may be reserved (1 or 0); then of
--       each limit: starts, the time in which so many may happen, microseconds, the most at once; then of each message:
--       its units by each limit (at most the most at once), when its start was reserved for, epoch ms ('' = it was not)
-- reply { of each message: microseconds (0 = it may start now; more = its start is reserved for then; less = it waits as
--       long, without the sign), the number of the limit that says so; at the end the time, in microseconds }
--
-- Where a message waits, those behind it wait as well. One whose limit with a key is used up does not, if its start may be
-- reserved. A start that was reserved is not paid again, if it is not missed by more than a second. Of a limit without a key a
-- start is not lost that comes late by 30 ms, or by one period if that is shorter: its host waited for it, and had to ask.
-- A clock that was set back moves the times back with it. Nothing lies farther ahead than the limits without a key allow.
-- Atomicity: all limits are read before the first write. It adds the memory of a limit that is not paid for, until it is; so it
-- runs out of memory as well: a full server can be drained.
-- A repeat takes, and reserves, once more: fewer start, never more.
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
  local limit = { count = tonumber(ARGV[3 * i + 1]), period = tonumber(ARGV[3 * i + 2]) }
  limit.slack = cost(limit, tonumber(ARGV[3 * i + 3]))
  limit.grace = i <= plain and math.min(30000, cost(limit, 1)) or 0
  limits[i] = limit
end
for i, key in ipairs(KEYS) do
  if not paid[key] then
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
  return math.max(0, paid[key] + cost(limit, units) - limit.slack - at)
end
local function pay(limit, key, units)
  paid[key] = paid[key] + cost(limit, units)
  changed[key] = true
end
local reply, wait, by = {}, 0, 0
local count = (#ARGV - 3 - 3 * all) / (all + 1)
for m = 1, count do
  local first = 3 + 3 * all + (m - 1) * (all + 1)
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
  reply[#reply + 1] = later > 0 and later or wait
  reply[#reply + 1] = later > 0 and all or by
end
for key in pairs(changed) do
  redis.call('SET', key, text(paid[key]) .. ' ' .. text(at), 'PX', text(math.ceil((paid[key] - at) / 1000) + 1000))
end
reply[#reply + 1] = at
return reply
