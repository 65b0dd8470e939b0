-- Move deliveries of a reliable list to the dead-letter queue: check the owner, copy, then remove.
--
-- KEYS  1 processing list (self), 2 starts (hash), 3 dead-letter queue (list),
--       4 recovery set, if there is one
-- ARGV  1 instance (self), 2 journals (see `journals`; '' = none), 3 most entries in the dead-letter queue (0 = no bound),
--       4 'drop-oldest' | 'stop' at that bound; then per delivery: its entry on the processing list (token .. value; or, of
--       a large one, its token), with journals the name of its journal, the answer to its producer (see `answer`), how many bytes at the end of the entry
--       the copy ends with, what is before them
-- reply { one word per delivery: done | gone | stolen (taken over) | full | -<why it is refused>,
--       entries dropped from the dead-letter queue, how many more are over its bound }
--
-- Atomicity: each copy is written before its delivery goes: where the first one fails (wrong type, no right),
-- nothing is written; where a later one fails, that delivery stays. It only adds the memory of the
-- copies' headers, so it runs out of memory as well.
-- A repeat finds nothing on the processing list: gone, and no second copy.
-- A user that may copy but not remove would leave one copy for every try.
if not redis.acl_check_cmd('LREM', KEYS[1], '-1', '') then
  return redis.error_reply('NOPERM this user has no permission to run lrem')
end
local most, names, journals = tonumber(ARGV[3]), {}, {}
local stops = most > 0 and ARGV[4] == 'stop'
local step = ARGV[2] == '' and 4 or 5
for i = 5, #ARGV, step do
  names[#names + 1], journals[#names + 1] = ARGV[i], ARGV[i + 1]
end
local entry_of = find(KEYS[1], names)
local length = stops and redis.call('LLEN', KEYS[3]) or 0
local words, tokens, members = {}, {}, {}
for i, name in ipairs(names) do
  local token, entry = string.sub(name, 1, 16), entry_of(name)
  if not entry then
    words[i] = redis.call('HGET', KEYS[2], token) == 'taken' and 'stolen' or 'gone'
  elseif stops and length >= most then
    words[i] = 'full'
  else
    local reply = redis.pcall('LPUSH', KEYS[3], joined(ARGV[4 + step * i], entry, ARGV[3 + step * i]))
    if type(reply) == 'number' then
      length, words[i] = reply, 'done'
      redis.call('LREM', KEYS[1], '-1', entry)
      forget_journal(ARGV[2], '', journals[i])
      tell(ARGV[2 + step * i])
      tokens[#tokens + 1] = token
      members[#members + 1] = ARGV[1] .. token
    elseif #tokens == 0 then
      return reply
    else
      words[i] = '-' .. reply['err']
    end
  end
end
local dropped, over = 0, 0
if #tokens > 0 then
  redis.call('HDEL', KEYS[2], unpack(tokens))
  if KEYS[4] then
    redis.call('ZREM', KEYS[4], unpack(members))
  end
  if most > 0 and length > most then
    -- Housekeeping drops the rest: dropping many blocks Redis.
    dropped = math.min(length - most, 1000)
    redis.call('LTRIM', KEYS[3], 0, length - dropped - 1)
    over = length - dropped - most
  end
end
return { words, dropped, over }
