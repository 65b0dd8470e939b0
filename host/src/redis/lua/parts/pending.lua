-- Part, after `epoch`: pending deliveries of the stream KEYS[1] and the group ARGV[1], for the consumer
-- ARGV[2].
--
-- The delivery { id, consumer, idle ms, count }, or nil.
local function pending(id)
  return redis.call('XPENDING', KEYS[1], ARGV[1], id, id, '1')[1]
end
-- Why this host must not change a delivery: 'gone' | 'stolen'; nil if it owns the delivery with one of
-- these counts, or with any count if none is given. Fails if the group was made again, and does not have
-- the delivery: it is not gone, and the host must bring it back.
local function obstacle(id, count, other)
  local held = pending(id)
  if not held then
    same_group()
    return 'gone'
  end
  local fits = not count or held[4] == tonumber(count) or held[4] == tonumber(other)
  return (held[2] ~= ARGV[2] or not fits) and 'stolen' or nil
end
-- Take a delivery for a consumer: 'done', or 'trimmed': its entry is gone, and the delivery with it.
local function hold(consumer, id, ...)
  local claimed = redis.call('XCLAIM', KEYS[1], ARGV[1], consumer, '0', id, ...)
  return #claimed == 1 and 'done' or 'trimmed'
end
