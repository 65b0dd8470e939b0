-- Part, after `time`: what an attempt publishes and writes, and which values it has read. In ARGV: how
-- many of these, then for each a verb, the place of its key in KEYS (0 = a channel), how many arguments
-- follow, and these. `expect` writes nothing: its arguments are the length and the digest of a value; none =
-- there was no value. `reply` and `tell` have one argument, an answer (see `answer`): a handler has acknowledged the message,
-- or none has.
local VERBS = {
  append = { 'XADD', 'stream' },
  push = { 'LPUSH', 'list' },
  later = { 'ZADD', 'zset' },
  announce = { 'PUBLISH' },
  ['announce-shard'] = { 'SPUBLISH' },
  outbox = { 'XADD', 'stream' }, -- the most entries of the outbox, then an entry: `write`, a verb, ...
  due = { 'ZADD', 'zset' }, -- as `later`, but with the time when it is due
  set = { 'SET', 'string' },
  delete = { 'DEL', 'string' },
  expect = { 'GET' },
}
-- The writes from ARGV[at] on, each a command and the type of its key; and the place behind them. `expected`
-- are the values that were read, `answer` is the answer, `replies` says whether it is that of a handler.
local function writes(at)
  local out, expected = {}, {}
  local count = tonumber(ARGV[at])
  at = at + 1
  for i = 1, count do
    local verb, key, n = ARGV[at], KEYS[tonumber(ARGV[at + 1])], tonumber(ARGV[at + 2])
    local name, kind = unpack(VERBS[verb] or {})
    local command, first, most = { name, key }, at + 3, nil
    if verb == 'append' or verb == 'outbox' then
      command[3] = '*'
    end
    if verb == 'outbox' then
      first, most = first + 1, tonumber(ARGV[first])
    end
    if verb == 'expect' then
      expected[#expected + 1] = { key = key, length = n > 0 and tonumber(ARGV[at + 3]), digest = ARGV[at + 4] }
    elseif verb == 'reply' or verb == 'tell' then
      out.answer, out.replies = ARGV[first], verb == 'reply'
    else
      out[#out + 1] = { command = command, kind = kind, most = most }
    end
    for j = first, at + 2 + n do
      command[#command + 1] = ARGV[j]
    end
    if verb == 'later' then
      command[3] = text(now + command[3])
    elseif verb == 'outbox' and command[5] == 'later' then
      -- Its delay counts from here, however late it is relayed.
      command[7] = text(now + command[7])
    end
    at = at + 3 + n
  end
  out.expected = expected
  return out, at
end
-- Whether a value that was read is another one now: 'changed'; or why that cannot be known. nil: no value is.
local function changed(all)
  for _, value in ipairs(all.expected) do
    if not redis.acl_check_cmd('GET', value.key) or not redis.acl_check_cmd('STRLEN', value.key) then
      return '-NOPERM this user has no permission to run get or strlen on ' .. value.key
    end
    local kind = redis.call('TYPE', value.key)['ok']
    if kind ~= (value.length and 'string' or 'none') then
      return 'changed'
    end
    -- The length is asked first: a value that others wrote may be large.
    if value.length and (redis.call('STRLEN', value.key) ~= value.length
      or redis.sha1hex(redis.call('GET', value.key)) ~= value.digest) then
      return 'changed'
    end
  end
end
-- Why a write behind the first `written` would fail: Lua takes nothing back, so this is asked before the first
-- write. nil: it would not. (A lack of memory is found by the first write of a script, or by none.)
local function refusal(all, written)
  local kinds = {}
  for i = written + 1, #all do
    local write = all[i]
    local command, kind = write.command, write.kind
    if not redis.acl_check_cmd(unpack(command)) then
      return '-NOPERM this user has no permission to run ' .. command[1]:lower() .. ' on ' .. command[2]
    end
    local found = kind and (kinds[command[2]] or redis.call('TYPE', command[2])['ok'])
    kinds[command[2]] = kind
    if kind and found ~= 'none' and found ~= kind then
      -- The keys of the host are the operator's matter, and those of an attempt a failure of it.
      local own = write.most or kind == 'set'
      return (own and '-WRONGTYPE ' or '-UNFIT ') .. command[2] .. ' is a ' .. found .. ', and a ' .. kind .. ' is needed'
    end
    local held = write.most and redis.call('XLEN', command[2])
    if held and held >= write.most then
      return '-OUTBOXFULL ' .. command[2] .. ' holds ' .. held .. ' messages that are not relayed yet'
    end
  end
end
-- Write all but the first `written`, which an earlier try has written. nil: done; else why the next one failed,
-- and how many are written by now. Not every cause can be asked for: effects that are written stay, so the next
-- try must go on behind it.
local function write_all(all, written)
  for i = written + 1, #all do
    local reply = redis.pcall(unpack(all[i].command))
    if type(reply) == 'table' and reply['err'] then
      return '-' .. reply['err'], i - 1
    end
  end
end
