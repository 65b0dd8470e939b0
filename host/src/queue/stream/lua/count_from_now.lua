-- Renew, in the name of their owners, deliveries whose last renewal lies ahead of the clock.
--
-- KEYS  1 stream
-- ARGV  1 group, 2 consumer of parked deliveries, 3 where to begin ('-' or '(' .. id), 4 how many to look at
-- reply { entries found trimmed, where to go on ('' = there are no more) }
--
-- If the clock was set back, Redis calls them idle for 0 ms until it is there again: an orphan among them
-- would wait as long. A delivery that was renewed a moment ago looks the same: nothing changes for it.
-- Atomicity: only the first command can fail (no group, wrong type). A repeat renews them again.
local trimmed = 0
local page = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[3], '+', ARGV[4])
for _, held in ipairs(page) do
  if held[3] == 0 and held[2] ~= ARGV[2] then
    local claimed = redis.call('XCLAIM', KEYS[1], ARGV[1], held[2], 0, held[1], 'JUSTID')
    trimmed = trimmed + 1 - #claimed
  end
end
local last = #page == tonumber(ARGV[4]) and page[#page][1]
local greatest = '18446744073709551615-18446744073709551615'
return { trimmed, last and last ~= greatest and '(' .. last or '' }
