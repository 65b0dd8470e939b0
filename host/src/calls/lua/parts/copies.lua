-- Part: copies of entries of the stream KEYS[1].
--
-- In ARGV from `at` on stands first what the copies have in common: how many parts (field, value, ...) a copy has, and the
-- parts of the first copy; how many values differ between copies; then places of parts in a copy, from 1: how many have the id
-- of the entry, and which, and the same for each value that differs; then how many parts are taken from the entry, and for each
-- its place in the copy and its place in the entry. Then for each copy: `own` arguments of the script (the first is the id of
-- the entry), and the values that differ.
--
-- Returns where the copies begin, how many arguments each has, and a function that makes the parts of the copy at a place.
-- The function returns nil if the entry is gone and is needed: a part is taken from it, or `is_move`.
local function copies(at, own, is_move)
  local function list(each)
    local first, last = at + 1, at + (each or 1) * tonumber(ARGV[at])
    at = last + 1
    return { unpack(ARGV, first, last) }
  end
  local copy, differing = list(), tonumber(ARGV[at])
  at = at + 1
  -- The places, and from which argument of the copy their part comes.
  local places, from = {}, {}
  for value = 0, differing do
    for _, place in ipairs(list()) do
      places[#places + 1] = tonumber(place)
      from[#places] = value == 0 and 0 or own + value - 1
    end
  end
  local taken = list(2)
  for j = 1, #taken do
    taken[j] = tonumber(taken[j])
  end
  return at, own + differing, function(place)
    for j = 1, #places do
      copy[places[j]] = ARGV[place + from[j]]
    end
    if is_move or #taken > 0 then
      local entry = redis.call('XRANGE', KEYS[1], ARGV[place], ARGV[place])[1]
      if not entry then
        return nil
      end
      for j = 1, #taken, 2 do
        copy[taken[j]] = entry[2][taken[j + 1]]
      end
    end
    return copy
  end
end
-- Notes what became of the copy of an entry, by the reply to its XADD. Returns that reply if it is an error, and nothing
-- is written yet.
local function note(reply, i, id, words, done)
  if type(reply) ~= 'table' or not reply['err'] then
    done[#done + 1], words[i] = id, 'done'
  elseif #done == 0 then
    return reply
  else
    words[i] = '-' .. reply['err']
  end
end
