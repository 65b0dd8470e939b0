-- After a repair: take back deliveries of this host that the new group does not know. Those stay settled
-- that this host has acknowledged with effects in an earlier group, whatever became of the answer.
--
-- KEYS  1 stream, 2 what the last request of this host has acknowledged with effects (see `acknowledge`);
--       without it, nothing has effects
-- ARGV  1 group, 2 consumer (self), 3 mark of the group; then per delivery: id, count
-- reply one word per delivery: done | gone (acknowledged with effects) | trimmed | stolen
--
-- Atomicity: only reads can fail (no group, wrong type, the group was made again), before anything is written.
-- A repeat finds them held, and leaves them.
local acted = {}
for id in string.gmatch(KEYS[2] and redis.call('GETRANGE', KEYS[2], 0, -1) or '', '%S+') do
  acted[id] = true
end
local ids = arguments(4, 2)
local words = obstacles(ids)
for i, id in ipairs(ids) do
  words[i] = words[i] or 'done'
  if words[i] == 'gone' and not acted[id] then
    words[i] = false
  end
end
return hold(ARGV[2], ids, words, arguments(5, 2), 'FORCE')
