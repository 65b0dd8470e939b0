-- Hold deliveries for later by no host: parked, with a count to keep and a time when they are due.
--
-- KEYS  1 stream, 2 parked deliveries (sorted set: id -> due, epoch ms by this server's clock),
--       3 fences (sorted set: consumer -> number of a call)
-- ARGV  1 group, 2 consumer (self), 3 number of this call, 4 consumer of parked deliveries;
--       then per delivery: id, count it must have, count it keeps, delay in ms
-- reply one word per delivery: done | gone | trimmed | stolen
--
-- A call that was given up and asked again is void, however late it comes: this host may have the
-- same delivery again, with the same count, and would not know that it has gone.
-- Atomicity: the due time is written first, so that what may fail (wrong type, out of memory)
-- fails before the first write of the script; everything behind it passes.
-- A repeat finds the delivery parked with the count to keep: done.
local fence = redis.call('ZSCORE', KEYS[3], ARGV[2])
if fence and tonumber(ARGV[3]) < tonumber(fence) then
  return redis.error_reply('VOID it was asked again since')
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local out = {}
for i = 5, #ARGV, 4 do
  local id, count, keep = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  local held = redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1)[1]
  if not held then
    out[#out + 1] = 'gone'
  elseif held[2] == ARGV[4] and held[4] == keep then
    out[#out + 1] = 'done'
  elseif held[2] ~= ARGV[2] or held[4] ~= count then
    out[#out + 1] = 'stolen'
  else
    redis.call('ZADD', KEYS[2], string.format('%.0f', now + tonumber(ARGV[i + 3])), id)
    local claimed = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[4], 0, id,
      'RETRYCOUNT', ARGV[i + 2], 'JUSTID')
    if #claimed == 1 then
      out[#out + 1] = 'done'
    else
      redis.call('ZREM', KEYS[2], id)
      out[#out + 1] = 'trimmed'
    end
  end
end
return out
