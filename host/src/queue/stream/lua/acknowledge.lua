-- Acknowledge deliveries, publish and write what their attempts published and wrote, and mark their messages
-- as handled: check the owner, look for every refusal, write, then acknowledge.
--
-- KEYS  1 stream, 2 what the last request of this host has acknowledged with effects (string: the number of
--       the request, then ids), 3 how many writes of a delivery are done (sorted set), 4 parked deliveries (sorted set:
--       id -> due), then the sets of marks (the one to add to is the first), then the keys that are written, or
--       were read
-- ARGV  1 group, 2 consumer (self), 3 mark of the group, 4 how many sets of marks, 5 how many marks they
--       may hold, 6 how long a new set lives, ms, 7 number of the request, 8 how long KEYS[2] lives, ms, 9 journals of
--       the group (see `journals`; '' = none); then per delivery: id, count it must have, its mark ('' = none), its writes and the values that it
--       has read
-- reply one word per delivery (see `told`): done | marked (handled before: acknowledged, nothing is written)
--       | unmarked (done; no room for its mark) | changed (a value that it has read is another one: nothing
--       is written) | gone | stolen | -<why it is refused>; `-UNFIT` = a key has another type than its
--       write needs
--
-- Atomicity: whether the group is the one that the host knows is asked before the first write of any
-- delivery, and every known cause of a refusal before the first write of its own. A refusal behind that is
-- noted: the next try goes on there.
-- A repeat finds nothing pending: gone, and nothing is written twice. It has the same number. If the group
-- was deleted in between, `readopt` brings nothing back that KEYS[2] names.
local out, items = {}, {}
local may = redis.acl_check_cmd('XACK', KEYS[1], ARGV[1], '0-1')
local sets = tonumber(ARGV[4])
local at = 10
local ids, counts = {}, {}
while at <= #ARGV do
  local mark = ARGV[at + 2]
  ids[#ids + 1], counts[#counts + 1] = ARGV[at], ARGV[at + 1]
  local all
  all, at = writes(at + 3)
  -- The mark of a message is no effect, nor is an answer that no handler gave. One with a journal must not run again without it.
  local acts = #all > 0 or all.replies or has_journal(ARGV[9], ids[#ids])
  items[#items + 1] = { id = ids[#ids], mark = mark, all = all, acts = acts }
end
-- Who owns what is asked for all deliveries first: that fails if the group was made again.
local words = obstacles(ids, counts)
-- A delivery that is acknowledged with effects is noted: asked for before the first write, too.
local noted
local function may_note()
  if not redis.acl_check_cmd('GETRANGE', KEYS[2], '0', '-1')
    or not redis.acl_check_cmd('SET', KEYS[2], '', 'PX', ARGV[8]) then
    return false
  end
  noted = noted or redis.call('GETRANGE', KEYS[2], 0, -1)
  return true
end
local begun = redis.call('ZCARD', KEYS[3]) > 0
local acted, records, gone = {}, { 'ZREM', KEYS[4] }, {}
for i, item in ipairs(items) do
  local word = words[i]
  if not word and not may then
    word = '-NOPERM this user has no permission to run xack'
  end
  if not word and item.acts and not may_note() then
    word = '-NOPERM this user has no permission to run getrange or set on ' .. KEYS[2]
  end
  if not word then
    word = settle_marked(5, sets, item.mark, item.all, tonumber(ARGV[5]), ARGV[6], KEYS[3], item.id, begun)
    if word ~= 'changed' and string.sub(word, 1, 1) ~= '-' then
      redis.call('XACK', KEYS[1], ARGV[1], item.id)
      if word ~= 'marked' then
        tell(item.all.answer)
      end
      forget_journal(ARGV[9], ARGV[1], item.id)
      gone[#gone + 1] = item.id
      acted[#acted + 1] = item.acts and item.id or nil
      -- One that has not started may have a record.
      records[#records + 1] = not item.acts and item.id or nil
    end
  end
  out[i] = word
end
if #records > 2 then
  redis.pcall(unpack(records))
end
forget_held(KEYS[4], gone)
if #acted > 0 then
  local start = ARGV[7] .. ' '
  if string.sub(noted, 1, #start) ~= start then
    noted = start
  end
  redis.call('SET', KEYS[2], noted .. table.concat(acted, ' ') .. ' ', 'PX', ARGV[8])
end
return told(out)
