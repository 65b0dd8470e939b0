-- Claim parked deliveries without a due time: they are due now.
--
-- KEYS  1 stream, 2 late acknowledgements (sorted set: id -> when), 3 parked deliveries (sorted set: id -> due)
-- ARGV  1 group, 2 consumer (self), 3 mark of the group, 4 consumer of parked deliveries, 5 where to begin
--       ('-' or '(' .. id), 6 how many to look at, 7 at most how many to claim,
--       8 after how many bytes of fields to stop, 9 after how long the record of a claim comes up again, ms
-- reply { claims, trimmed, where to go on }
--
-- Atomicity: reads that can fail come first; what is written behind them cannot fail.
-- A repeat finds the deliveries of an earlier call owned by this host.
local page = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[5], '+', ARGV[6], ARGV[4])
local next
for _, held in ipairs(page) do
  if not redis.call('ZSCORE', KEYS[3], held[1]) then
    if #claims >= tonumber(ARGV[7]) or bytes >= tonumber(ARGV[8]) then
      -- Go on here, this one included.
      next = held[1]
      break
    end
    claim({ held }, tonumber(ARGV[8]))
  end
end
forget_taken(KEYS[2])
keep_records(KEYS[3], ARGV[9])
-- Behind a full page there may be more; behind the greatest id there is nothing.
local last = #page == tonumber(ARGV[6]) and page[#page][1]
local greatest = '18446744073709551615-18446744073709551615'
return { claims, trimmed, next or (last and last ~= greatest and '(' .. last) or '-' }
