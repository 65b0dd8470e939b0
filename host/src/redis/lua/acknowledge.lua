-- Acknowledge deliveries, and publish what their attempts published: check the owner, look for every
-- refusal, write, then acknowledge.
--
-- KEYS  1 stream, then the keys that are written
-- ARGV  1 group, 2 consumer (self); then per delivery: id, count it must have, its writes
-- reply one word per delivery: done | gone | stolen | -<why it is refused>
--
-- Atomicity: every cause of a refusal is found before the first write, for each delivery apart.
-- A repeat finds nothing pending: gone, and nothing is written twice.
local out = {}
local may = redis.acl_check_cmd('XACK', KEYS[1], ARGV[1], '0-1')
local at = 3
while at <= #ARGV do
  local id, count = ARGV[at], ARGV[at + 1]
  local all
  all, at = writes(at + 2)
  local word = obstacle(id, count)
  if not word and not may then
    word = '-NOPERM this user has no permission to run xack'
  end
  word = word or refusal(all) or write_all(all)
  if not word then
    redis.call('XACK', KEYS[1], ARGV[1], id)
  end
  out[#out + 1] = word or 'done'
end
return out
