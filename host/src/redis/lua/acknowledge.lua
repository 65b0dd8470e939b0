-- Acknowledge deliveries, publish what their attempts published, and mark their messages as handled: check
-- the owner, look for every refusal, write, then acknowledge.
--
-- KEYS  1 stream, then the sets of marks (the one to add to is the first), then the keys that are written
-- ARGV  1 group, 2 consumer (self), 3 mark of the group, 4 how many sets of marks, 5 how many marks they
--       may hold, 6 how long a new set lives, ms; then per delivery: id, count it must have, its mark ('' = none), its writes
-- reply one word per delivery: done | marked (handled before: acknowledged, nothing is written)
--       | unmarked (done; no room for its mark) | gone | stolen | -<why it is refused>
--
-- Atomicity: every cause of a refusal is found before the first write, for each delivery apart.
-- A repeat finds nothing pending: gone, and nothing is written twice.
local out = {}
local may = redis.acl_check_cmd('XACK', KEYS[1], ARGV[1], '0-1')
local sets = tonumber(ARGV[4])
local at = 7
while at <= #ARGV do
  local id, count, mark = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local all
  all, at = writes(at + 3)
  local word = obstacle(id, count)
  if not word and not may then
    word = '-NOPERM this user has no permission to run xack'
  end
  if not word then
    word = settle_marked(2, sets, mark, all, tonumber(ARGV[5]), ARGV[6])
    if string.sub(word, 1, 1) ~= '-' then
      redis.call('XACK', KEYS[1], ARGV[1], id)
    end
  end
  out[#out + 1] = word
end
return out
