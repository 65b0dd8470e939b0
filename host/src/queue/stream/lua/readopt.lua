-- Take back deliveries of this host that are not pending, and that no host can have taken: after a repair the
-- new group does not know them, or the consumer was deleted. Those stay settled that an earlier owner
-- has acknowledged late, or that another host has taken since, and those that this host has acknowledged with effects in an earlier group, whatever
-- became of the answer.
--
-- KEYS  1 stream, 2 late acknowledgements (see `acknowledge_late` and `note_taken`), 3 parked deliveries (sorted set: id ->
--       due), 4 what the last request of this host has acknowledged with effects (see `acknowledge`); without it,
--       nothing has effects
-- ARGV  1 group, 2 consumer (self), 3 mark of the group; then per delivery: id, count
-- reply one word per delivery: done | gone (acknowledged) | trimmed | stolen
--
-- Atomicity: only reads can fail (no group, wrong type, the group was made again), before anything is written.
-- A repeat finds them held, and leaves them.
local acted = {}
for id in string.gmatch(KEYS[4] and redis.call('GETRANGE', KEYS[4], 0, -1) or '', '%S+') do
  acted[id] = true
end
local ids = arguments(4, 2)
local words = obstacles(ids)
for i, id in ipairs(ids) do
  words[i] = words[i] or 'done'
  local is_settled = acted[id] or redis.call('ZSCORE', KEYS[2], id)
    or redis.call('ZSCORE', KEYS[2], id .. ' ' .. ARGV[3] .. ' ' .. ARGV[2])
  if words[i] == 'gone' and not is_settled then
    words[i] = false
  end
end
hold(ARGV[2], ids, words, arguments(5, 2), 'FORCE')
forget_records(KEYS[3], ids, words)
return words
