-- Part, after `time`: what the live hosts of a queue go by. A sorted set holds their terms: idle time that
-- makes an orphan, ms .. ' ' .. name of the recovery set behind its length .. ' ' .. host -> until when,
-- epoch ms. No host takes what the terms of another live host protect.
local function recovering(set)
  return #set .. ':' .. set .. ' '
end
-- The largest and the smallest idle time, `own` among them; and whether all go by this recovery set.
local function agreed(key, own, set)
  local largest, smallest, alike = tonumber(own), tonumber(own), true
  local mark = recovering(set or '')
  -- The longest a host can be told is a day. Those that hold longest come first.
  local hosts = redis.call('ZRANGE', key, 0, 999, 'REV', 'WITHSCORES')
  for i = 1, #hosts, 2 do
    local idle, rest = string.match(hosts[i], '^(%d+) (.*)$')
    if idle and tonumber(idle) <= 86400000 and tonumber(hosts[i + 1]) > now then
      largest = math.max(largest, tonumber(idle))
      smallest = math.min(smallest, tonumber(idle))
      alike = alike and string.sub(rest, 1, #mark) == mark
    end
  end
  return largest, smallest, alike
end
