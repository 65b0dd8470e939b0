-- Move dead letters of a stream to a queue: copy, then remove.
--
-- KEYS  1 dead-letter queue, 2 queue, 3... for each dead letter the record of a two-phase move (hash)
-- ARGV  copies (see `copies`), each with its id
-- reply one word per dead letter: done | gone | moving (another replay has begun a two-phase move of it)
--       | -<why it is refused>
--
-- Atomicity: each copy is written before its dead letter goes: where the first one fails (wrong type, out of
-- memory), nothing is written; where a later one fails, that dead letter stays. Behind the copies stands only
-- XDEL, which cannot fail anymore.
-- A repeat finds nothing to move: gone, and no second copy.
local at, step, copy_of = copies(1, 1, true)
-- A user that may copy but not remove would leave one copy for every try.
if not redis.acl_check_cmd('XDEL', KEYS[1], ARGV[at]) then
  return redis.error_reply('NOPERM this user has no permission to run xdel')
end
local words, done, seen = {}, {}, {}
for i = 1, #KEYS - 2 do
  local place = at + (i - 1) * step
  local id = ARGV[place]
  local copy = not seen[id] and copy_of(place)
  seen[id] = true
  if not copy then
    words[i] = 'gone'
  elseif redis.call('EXISTS', KEYS[i + 2]) == 1 then
    words[i] = 'moving'
  else
    local refusal = note(redis.pcall('XADD', KEYS[2], '*', unpack(copy)), i, id, words, done)
    if refusal then
      return refusal
    end
  end
end
if #done > 0 then
  redis.call('XDEL', KEYS[1], unpack(done))
end
return words
