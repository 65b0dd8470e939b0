-- Read the oldest entries of an outbox.
--
-- KEYS  1 outbox
-- ARGV  1 at most how many, 2 after how many bytes to stop
-- reply { how many entries it has, 1 = these are all of them (else 0), the clock (ms), then per entry: id,
--       number of names and values, names and values }
--
-- How large an entry is shows only when it is read: large ones are read one by one.
-- Atomicity: it only reads.
-- A repeat reads what is there by then.
local room, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
local out, count, bytes, step, from = { redis.call('XLEN', KEYS[1]), 0, now }, 0, 0, 1, '-'
while count < room and bytes < limit do
  local page = redis.call('XRANGE', KEYS[1], from, '+', 'COUNT', math.min(step, room - count))
  for _, entry in ipairs(page) do
    out[#out + 1] = entry[1]
    out[#out + 1] = #entry[2]
    for _, part in ipairs(entry[2]) do
      out[#out + 1] = part
      bytes = bytes + #part
    end
    from = '(' .. entry[1]
  end
  count = count + #page
  if #page == 0 then
    break
  end
  step = next_step(limit, count, bytes)
end
out[2] = count == out[1] and 1 or 0
return out
