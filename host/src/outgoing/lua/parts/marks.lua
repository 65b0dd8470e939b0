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
-- The note about the first `count` writes: their number, and a fraction that stands for their commands and keys.
local function note_of(all, count)
  local places = ''
  for i = 1, count do
    local command = all[i].command
    places = places .. command[1] .. ' ' .. #command[2] .. ' ' .. command[2]
  end
  return count + tonumber(string.sub(redis.sha1hex(places), 1, 8), 16) / 4294967296
end
-- Write all, and the mark ('' = none): done | marked (before) | unmarked (no room) | changed (a value that
-- was read is another one: nothing is written) | -<why not>.
--
-- If a write fails behind another one, the sorted set `progress` notes for this delivery how many are written, for
-- a while. The next try goes on there, also that of another attempt that begins with the same commands on the same
-- keys. An attempt that begins with others writes all of its own. `begun`: there are such notes.
local PROGRESS_MS, PROGRESS_MAX = 86400000, 10000
local function settle_marked(marks, count, mark, all, most, lives, progress, id, begun)
  local word = 'done'
  local note = begun and tonumber(redis.call('ZSCORE', progress, id) or nil)
  local written = note and math.floor(note) or 0
  if written > #all or note and note ~= note_of(all, written) then
    written = 0
  end
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
  -- How far it got must be noted.
  if #all - written > 1 and not (redis.acl_check_cmd('ZADD', progress, '1', id)
    and redis.acl_check_cmd('ZREM', progress, id) and redis.acl_check_cmd('PEXPIRE', progress, '1')) then
    return '-NOPERM this user has no permission to run zadd, zrem or pexpire on ' .. progress
  end
  -- Once it has begun, it ends.
  local refused = (written == 0 and changed(all) or nil) or refusal(all, written)
  if not refused then
    local after
    refused, after = write_all(all, written)
    if refused and after > written then
      redis.call('ZADD', progress, string.format('%.17g', note_of(all, after)), id)
      redis.call('PEXPIRE', progress, PROGRESS_MS)
      -- Those of deliveries that ended in another way are left.
      if redis.call('ZCARD', progress) > PROGRESS_MAX then
        redis.call('ZREM', progress, redis.call('ZRANGE', progress, 0, 0)[1])
      end
    end
  end
  if refused then
    return refused
  end
  if note then
    redis.call('ZREM', progress, id)
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
