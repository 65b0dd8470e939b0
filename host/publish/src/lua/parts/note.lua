-- Part, after `time`.
-- Note a message in a sorted set (message -> when, epoch ms) with at most `most` of them; the set lives for `keep` ms more ('' = as
-- it does).
local function note(key, message, keep, most)
  if type(redis.pcall('ZADD', key, text(now), message)) == 'number' then
    if keep ~= '' then
      redis.pcall('PEXPIRE', key, keep)
    end
    if redis.call('ZCARD', key) > tonumber(most) then
      redis.pcall('ZREM', key, unpack(redis.call('ZRANGE', key, 0, 0)))
    end
  end
end
