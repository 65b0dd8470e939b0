-- Part: copies of entries of the stream KEYS[1]. In ARGV from `at` on, first what they have in common: how many
-- parts (field, value, ...), and these; how many of them differ, and their places, from 1; how many are taken from
-- the entry, and for each its place in the copy and in the entry. Then per copy: `own` arguments of the
-- script, the id of the entry first, and the parts that differ.
--
-- Returns where the copies begin, how many arguments each has, and what makes the parts of one of them; nil if
-- a part of it is in the entry, or `is_move`, and the entry is gone.
local function copies(at, own, is_move)
  local function list(each)
    local first, last = at + 1, at + (each or 1) * tonumber(ARGV[at])
    at = last + 1
    return { unpack(ARGV, first, last) }
  end
  local function numbers(each)
    local all = list(each)
    for i = 1, #all do
      all[i] = tonumber(all[i])
    end
    return all
  end
  local copy, differing, taken = list(), numbers(), numbers(2)
  local step = own + #differing
  return at, step, function(place)
    for j = 1, #differing do
      copy[differing[j]] = ARGV[place + own - 1 + j]
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
