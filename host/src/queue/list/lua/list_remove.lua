-- Take deliveries off a reliable list: they are done, or discarded.
--
-- KEYS  1 processing list (self), 2 starts (hash), 3 recovery set, if there is one
-- ARGV  1 instance (self), 2 journals (see `journals`; '' = none); then per delivery: its entry on the processing list
--       (token .. value; or, of a large one, its token), and, with journals, the name of its journal
-- reply one word per delivery: done | gone | stolen (another instance has taken it over)
--
-- Atomicity: only the first command can fail (wrong type, no right), before anything is written.
-- It only frees memory, so it runs out of memory as well.
-- A repeat finds nothing: gone.
local out, tokens, members = {}, {}, {}
local names, journals = {}, {}
for i = 3, #ARGV, ARGV[2] == '' and 1 or 2 do
  names[#names + 1], journals[#names + 1] = ARGV[i], ARGV[i + 1]
end
local entry_of = find(KEYS[1], names)
for i = 1, #names do
  local token = string.sub(names[i], 1, 16)
  local entry = #names[i] == 16 and entry_of(names[i]) or names[i]
  if redis.call('LREM', KEYS[1], '-1', entry) == 1 then
    out[#out + 1] = 'done'
    forget_journal(ARGV[2], '', journals[i])
  else
    out[#out + 1] = redis.call('HGET', KEYS[2], token) == 'taken' and 'stolen' or 'gone'
  end
  if out[#out] ~= 'stolen' then
    tokens[#tokens + 1] = token
  end
  if KEYS[3] then
    members[#members + 1] = ARGV[1] .. token
  end
end
if #tokens > 0 then
  redis.call('HDEL', KEYS[2], unpack(tokens))
end
if KEYS[3] then
  redis.call('ZREM', KEYS[3], unpack(members))
end
return out
