-- Part, after `time`: the terms of the live hosts of a queue, in a sorted set: idle time that
-- makes an orphan, ms .. ' ' .. name of the recovery set behind its length .. ' ' .. host -> until when,
-- epoch ms. No host takes what the terms of another live host protect.
local function recovering(set)
  return #set .. ':' .. set .. ' '
end
-- The live hosts: { idle time, whether they use this recovery set } each.
local function terms(key, set)
  local mark, out = recovering(set or ''), {}
  local hosts = redis.call('ZRANGE', key, 0, 999, 'REV', 'WITHSCORES')
  for i = 1, #hosts, 2 do
    local idle, rest = string.match(hosts[i], '^(%d+) (.*)$')
    -- The longest idle time that a host may have is a day.
    if idle and tonumber(idle) <= 86400000 and tonumber(hosts[i + 1]) > now then
      out[#out + 1] = { tonumber(idle), string.sub(rest, 1, #mark) == mark }
    end
  end
  return out
end
-- The largest and the smallest idle time, `own` among them; and whether all use this recovery set.
local function agreed(key, own, set)
  local largest, smallest, alike = tonumber(own), tonumber(own), true
  for _, host in ipairs(terms(key, set)) do
    largest, smallest = math.max(largest, host[1]), math.min(smallest, host[1])
    alike = alike and host[2]
  end
  return largest, smallest, alike
end
-- Whether some host uses this recovery set.
local function is_used(key, set)
  for _, host in ipairs(terms(key, set)) do
    if host[2] then
      return true
    end
  end
  return false
end
