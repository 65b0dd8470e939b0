-- Part, behind `effects`: the marks of handled messages. `marks` is the place of the first of their sets in
-- KEYS, to which marks are added; `count` is how many there are (0 = none), `most` how many marks they may
-- hold together, `lives` how many ms a new set lives.
local function is_marked(marks, count, mark)
  for i = marks, marks + count - 1 do
    if redis.call('SISMEMBER', KEYS[i], mark) == 1 then
      return true
    end
  end
  return false
end
-- Whether there is room for another mark.
local function has_room(marks, count, most)
  local held = 0
  for i = marks, marks + count - 1 do
    held = held + redis.call('SCARD', KEYS[i])
  end
  return held < most
end
-- Write all, and the mark ('' = none): done | marked (before) | unmarked (no room) | changed (a value that
-- was read is another one: nothing is written) | -<why not>.
local function settle_marked(marks, count, mark, all, most, lives)
  local word = 'done'
  if count > 0 and mark ~= '' then
    if is_marked(marks, count, mark) then
      return 'marked'
    end
    if not redis.acl_check_cmd('PEXPIRE', KEYS[marks], lives) then
      return '-NOPERM this user has no permission to run pexpire'
    end
    if has_room(marks, count, most) then
      all[#all + 1] = { command = { 'SADD', KEYS[marks], mark }, kind = 'set' }
    else
      word, mark = 'unmarked', ''
    end
  end
  local refused = changed(all) or refusal(all) or write_all(all)
  if refused then
    return refused
  end
  if count > 0 and mark ~= '' and redis.call('PTTL', KEYS[marks]) < 0 then
    redis.call('PEXPIRE', KEYS[marks], lives)
  end
  return word
end
