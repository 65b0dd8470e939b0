-- Part, after `time`: what an attempt publishes. In ARGV: how many writes, then per write a verb, the
-- place of its key in KEYS (0 = a channel), how many arguments follow, and these.
local VERBS = {
  append = { 'XADD', 'stream' },
  push = { 'LPUSH', 'list' },
  later = { 'ZADD', 'zset' },
  announce = { 'PUBLISH' },
  ['announce-shard'] = { 'SPUBLISH' },
}
-- The writes from ARGV[at] on, each a command and the type of its key; and the place behind them.
local function writes(at)
  local out = {}
  local count = tonumber(ARGV[at])
  at = at + 1
  for i = 1, count do
    local verb, key, n = ARGV[at], KEYS[tonumber(ARGV[at + 1])], tonumber(ARGV[at + 2])
    local name, kind = unpack(VERBS[verb])
    local command = { name, key }
    if verb == 'append' then
      command[3] = '*'
    end
    for j = at + 3, at + 2 + n do
      command[#command + 1] = ARGV[j]
    end
    if verb == 'later' then
      command[3] = text(now + command[3])
    end
    out[i] = { command = command, kind = kind }
    at = at + 3 + n
  end
  return out, at
end
-- Why a write would fail: Lua takes nothing back, so this is asked before the first write. nil: it
-- would not. (A lack of memory is found by the first write of a script, or by none.)
local function refusal(all)
  local kinds = {}
  for _, write in ipairs(all) do
    local command, kind = write.command, write.kind
    if not redis.acl_check_cmd(unpack(command)) then
      return '-NOPERM this user has no permission to run ' .. command[1]:lower() .. ' on ' .. command[2]
    end
    local found = kind and (kinds[command[2]] or redis.call('TYPE', command[2])['ok'])
    kinds[command[2]] = kind
    if kind and found ~= 'none' and found ~= kind then
      return '-WRONGTYPE ' .. command[2] .. ' is a ' .. found .. ', and a ' .. kind .. ' is needed'
    end
  end
end
-- Write all. nil: done; else why the first one failed, and nothing is written.
local function write_all(all)
  for i, write in ipairs(all) do
    local reply = redis.pcall(unpack(write.command))
    if type(reply) == 'table' and reply['err'] then
      if i > 1 then
        -- Every known cause was asked for. What is written stays: the delivery comes again.
        return '-' .. reply['err'] .. ' (after ' .. (i - 1) .. ' of ' .. #all .. ' writes)'
      end
      return '-' .. reply['err']
    end
  end
end
