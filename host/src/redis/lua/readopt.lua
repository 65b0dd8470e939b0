-- After a repair: take back deliveries of this host that the new group does not know. Those stay settled
-- that this host has acknowledged with effects in an earlier group, whatever became of the answer.
--
-- KEYS  1 stream, 2 what the last request of this host has acknowledged with effects (see `acknowledge`);
--       without it, nothing has effects
-- ARGV  1 group, 2 consumer (self), 3 mark of the group; then per delivery: id, count
-- reply one word per delivery: done | gone (acknowledged with effects) | trimmed | stolen
--
-- Atomicity: the first commands can fail (no group, wrong type), before anything is written; later ones
-- only if the group was made again.
-- A repeat finds them held, and leaves them.
local acted = {}
for id in string.gmatch(KEYS[2] and redis.call('GETRANGE', KEYS[2], 0, -1) or '', '%S+') do
  acted[id] = true
end
local out = {}
for i = 4, #ARGV, 2 do
  local id = ARGV[i]
  local word = obstacle(id)
  if word == 'gone' and not acted[id] then
    word = hold(ARGV[2], id, 'FORCE', 'RETRYCOUNT', ARGV[i + 1], 'JUSTID')
  end
  out[#out + 1] = word or 'done'
end
return out
