-- Part: a group that lacks parked deliveries. The consumer `unparked` says so, until `park_again` has looked at each of
-- their records. A client may delete the consumer of parked deliveries, `parked`, with all that it has. It comes back
-- with the next one that is parked: so each script that parks asks before that.
local function make_consumer(name)
  redis.call('XREADGROUP', 'GROUP', ARGV[1], name, 'NOACK', 'COUNT', 1, 'STREAMS', KEYS[1], '0')
end
local function look_for_missing(records, parked, unparked)
  if redis.call('ZCARD', records) == 0 or #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', '1', parked) > 0 then
    return
  end
  for _, info in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
    if info[2] == parked then
      return
    end
  end
  make_consumer(unparked)
end
