-- Acknowledge deliveries, publish what their attempts published, and mark their messages as handled: check
-- the owner, look for every refusal, write, then acknowledge.
--
-- KEYS  1 stream, then the sets of marks (the one to add to is the first), then the keys that are written
-- ARGV  1 group, 2 consumer (self), 3 mark of the group, 4 how many sets of marks, 5 how many marks they
--       may hold, 6 how long a new set lives, ms; then per delivery: id, count it must have, its mark
--       ('' = none), its writes
-- reply one word per delivery: done | marked (handled before: acknowledged, nothing is written)
--       | unmarked (done; no room for its mark) | gone | stolen | -<why it is refused>
--
-- Atomicity: whether the group is the one that the host knows is asked before the first write of any
-- delivery, and every cause of a refusal before the first write of its own.
-- A repeat finds nothing pending: gone, and nothing is written twice.
local out, items = {}, {}
local may = redis.acl_check_cmd('XACK', KEYS[1], ARGV[1], '0-1')
local sets = tonumber(ARGV[4])
local at = 7
-- Who owns what is asked for all deliveries first: that fails if the group was made again.
while at <= #ARGV do
  local id, mark = ARGV[at], ARGV[at + 2]
  local word = obstacle(id, ARGV[at + 1])
  local all
  all, at = writes(at + 3)
  items[#items + 1] = { id = id, mark = mark, all = all, word = word }
end
for i, item in ipairs(items) do
  local word = item.word
  if not word and not may then
    word = '-NOPERM this user has no permission to run xack'
  end
  if not word then
    word = settle_marked(2, sets, item.mark, item.all, tonumber(ARGV[5]), ARGV[6])
    if string.sub(word, 1, 1) ~= '-' then
      redis.call('XACK', KEYS[1], ARGV[1], item.id)
    end
  end
  out[i] = word
end
return out
