-- Move one dead letter of a list to a queue: copy, then remove.
--
-- KEYS  1 dead-letter queue, 2 queue, 3 the record of a two-phase move (hash)
-- ARGV  1 'list', 2 value, 3 the copy
-- reply { done | gone | moving (another replay has begun a two-phase move of it) }
--
-- Atomicity: the copy is the first write. Where it fails (wrong type, out of memory), the dead
-- letter is as it was; behind it stands only the removal, which cannot fail anymore.
-- A repeat finds nothing to move: gone, and no second copy.
if not exists() then
  return { 'gone' }
end
if redis.call('EXISTS', KEYS[3]) == 1 then
  return { 'moving' }
end
local refusal = forbidden()
if refusal then
  return refusal
end
redis.call('LPUSH', KEYS[2], ARGV[3])
remove()
return { 'done' }
