-- List deliveries that one instance of a reliable list holds and has not renewed for too long.
--
-- KEYS  1 its processing list, 2 its starts (hash), 3 instances, 4 terms of the hosts, 5 recovery set, if
--       there is one
-- ARGV  1 the instance, 2 idle time that makes an orphan, ms (the largest holds), 3 at most how many, 4 after how many
--       bytes of values to stop, 5 how many entries to look at; then tokens: only these, at any
--       idle time (none = all)
-- reply per orphan { its entry on the processing list (token .. value), starts charged to it by the
--       instance ('' = none recorded), idle ms }
--
-- An entry without a record waits until its instance was not seen for the idle time. Meanwhile it gets a record, as
-- claimed now, so that an expired recovery set strands nothing. While some hosts go without the recovery set,
-- their instances alone say whether they live: an entry gets no record, and a record does not suffice. A
-- record without an entry goes.
-- Atomicity: takes nothing; list_take.lua compares and takes. A repeat looks again.
local room, limit = tonumber(ARGV[3]), tonumber(ARGV[4])
local least, _, alike = agreed(KEYS[4], ARGV[2], KEYS[5])
local seen = redis.call('ZSCORE', KEYS[3], ARGV[1])
-- An evicted or unknown instance counts as idle.
local idle = seen and tonumber(seen) > 0 and now - tonumber(seen) or least
local wanted
for i = 6, #ARGV do
  wanted = wanted or {}
  wanted[ARGV[i]] = true
end
if not wanted and not KEYS[5] and idle < least then
  return {}
end
local out, bytes, met, at, step = {}, 0, {}, 1, 1
local complete = false
while at <= tonumber(ARGV[5]) and #out < room and bytes < limit do
  -- The oldest are on the right.
  local page = redis.call('LRANGE', KEYS[1], -(at + step - 1), -at)
  if #page == 0 then
    complete = true
    break
  end
  local looked = 0
  for i = #page, 1, -1 do
    local token = string.sub(page[i], 1, 16)
    looked = looked + #page[i]
    met[token] = true
    local waited
    if wanted then
      waited = wanted[token] and 0
    elseif not KEYS[5] then
      waited = idle
    else
      local record = redis.call('ZSCORE', KEYS[5], ARGV[1] .. token)
      waited = record and now - tonumber(record) or idle
      if not alike then
        waited = math.min(waited, idle)
      end
      if waited < least then
        waited = nil
        if not record and alike then
          redis.call('ZADD', KEYS[5], text(now), ARGV[1] .. token)
        end
      end
    end
    if waited and #out < room then
      local starts = redis.call('HGET', KEYS[2], token) or ''
      out[#out + 1] = { page[i], starts, text(waited) }
      bytes = bytes + #page[i]
    end
  end
  at = at + #page
  step = next_step(limit, #page, looked)
end
if KEYS[5] and complete and not wanted then
  local before = text(now - least)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', before, 'LIMIT', 0, 1000)) do
    if string.sub(member, 1, -17) == ARGV[1] and not met[string.sub(member, -16)] then
      redis.call('ZREM', KEYS[5], member)
    end
  end
end
return out
