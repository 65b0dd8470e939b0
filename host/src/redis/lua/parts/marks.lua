-- Part, behind `effects`: the marks of handled messages. `marks` is the place of the first of their sets in
-- KEYS, to which marks are added; `count` is how many there are (0 = none), `most` how many marks they may
-- hold together, `lives` how many ms a new set lives.
-- Of the sets, those that have marks, and how many marks they hold together: most sets are empty, so this is
-- asked once for a call.
local filled, held
local function count_marks(marks, count)
  filled, held = {}, 0
  for i = marks, marks + count - 1 do
    local size = redis.call('SCARD', KEYS[i])
    if size > 0 then
      filled[#filled + 1], held = KEYS[i], held + size
    end
  end
end
local function is_marked(mark)
  for _, key in ipairs(filled) do
    if redis.call('SISMEMBER', key, mark) == 1 then
      return true
    end
  end
  return false
end
-- Write all, and the mark ('' = none): done | marked (before) | unmarked (no room) | changed (a value that
-- was read is another one: nothing is written) | -<why not>.
local function settle_marked(marks, count, mark, all, most, lives)
  local word = 'done'
  if count > 0 and mark ~= '' then
    if not held then
      count_marks(marks, count)
    end
    if is_marked(mark) then
      return 'marked'
    end
    if not redis.acl_check_cmd('PEXPIRE', KEYS[marks], lives) then
      return '-NOPERM this user has no permission to run pexpire'
    end
    if held < most then
      all[#all + 1] = { command = { 'SADD', KEYS[marks], mark }, kind = 'set' }
    else
      word, mark = 'unmarked', ''
    end
  end
  local refused = changed(all) or refusal(all) or write_all(all)
  if refused then
    return refused
  end
  if count > 0 and mark ~= '' then
    held = held + 1
    if filled[1] ~= KEYS[marks] then
      table.insert(filled, 1, KEYS[marks])
    end
    if redis.call('PTTL', KEYS[marks]) < 0 then
      redis.call('PEXPIRE', KEYS[marks], lives)
    end
  end
  return word
end
