-- Whether this host owns a delivery with this count: before a copy that no script can carry.
--
-- KEYS  1 stream
-- ARGV  1 group, 2 consumer (self); then per delivery: id, count it must have
-- reply one word per delivery: done (it does) | gone | stolen
--
-- Atomicity: reads only. A repeat asks again.
-- A user that may copy but not acknowledge would leave one copy for every try.
if not redis.acl_check_cmd('XACK', KEYS[1], ARGV[1], '0-1') then
  return redis.error_reply('NOPERM this user has no permission to run xack')
end
local out = {}
for i = 3, #ARGV, 2 do
  local held = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1)[1]
  if not held then
    out[#out + 1] = 'gone'
  elseif held[2] ~= ARGV[2] or held[4] ~= tonumber(ARGV[i + 1]) then
    out[#out + 1] = 'stolen'
  else
    out[#out + 1] = 'done'
  end
end
return out
