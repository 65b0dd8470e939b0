-- Delete entries of a stream that an operator cancels before any host has read them.
--
-- KEYS  1 stream, 2 dead-letter queue, if there is one
-- ARGV  1 group ('' = all), 2 beginning of the key of cancelled deliveries, 3 for how long a note is kept, ms, 4 at most how many
--       are, 5 most entries in the dead-letter queue (0 = no bound), 6 'drop-oldest' | 'stop' at that bound; then per entry: id, the
--       answer to its producer (see `answer`), its dead letter (see `bury`)
-- reply one word per entry: cancelled | delivered (the group, or some group, has it pending or settled by now) | shared (another
--       group needs it) | before (it was cancelled before) | absent | full | -<why it is refused>
--
-- It writes notes of groups, which are not among KEYS: all are in the slot of KEYS[1].
-- Atomicity: no group can read an entry between the look and its deletion.
-- A repeat finds the note: before.
if not redis.acl_check_cmd('XDEL', KEYS[1], '0-1') then
  return redis.error_reply('NOPERM this user has no permission to run xdel')
end
local words, groups = {}, {}
for _, info in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  groups[#groups + 1] = named(info)
end
for i = 7, #ARGV, 3 do
  local id, word = ARGV[i], nil
  local unread, mine, needed, before = {}, ARGV[1] == '', false, false
  for _, group in ipairs(groups) do
    local name = group['name']
    local is_mine = ARGV[1] == '' or ARGV[1] == name
    if less(group['last-delivered-id'], id) then
      unread[#unread + 1] = name
      mine = mine or is_mine
      needed = needed or not is_mine
    elseif #redis.call('XPENDING', KEYS[1], name, id, id, '1') > 0 then
      needed = true
    end
    before = before or is_mine and redis.call('ZSCORE', ARGV[2] .. name, id)
  end
  if #redis.call('XRANGE', KEYS[1], id, id) == 0 then
    word = before and 'before' or 'absent'
  elseif not mine or #unread == 0 and #groups > 0 then
    word = 'delivered'
  elseif needed then
    word = ARGV[1] == '' and 'delivered' or 'shared'
  else
    word = bury(KEYS[2], ARGV[i + 2], ARGV[5], ARGV[6])
  end
  if not word then
    redis.call('XDEL', KEYS[1], id)
    tell(ARGV[i + 1])
    for _, name in ipairs(unread) do
      note(ARGV[2] .. name, id, ARGV[3], ARGV[4])
    end
    word = 'cancelled'
  end
  words[#words + 1] = word
end
return words
