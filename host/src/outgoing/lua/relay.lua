-- Write entries of an outbox to their destination, each once and in order, whichever host relays them and how
-- often.
--
-- KEYS  1 the last entry that was written from each outbox (hash), then the keys that are written
-- ARGV  1 outbox, 2 a mark that is void, because the outbox began again ('' = none is), then per entry, in
--       order: id, its write
-- reply { last entry of this outbox that is written, how many were written by this call, why the next one is
--       refused ('' = none is), 1 = the mark was void (else 0) }
--
-- Atomicity: the entries and the mark of the last one are one step. Every cause of a refusal is found before
-- the first write of an entry; entries before the refused one stay written, and the mark says so.
-- A repeat, or a call that comes late, skips what is not above the mark. But a run leaves nothing out: if the
-- mark is within its ids, and not one of them, the outbox began again, and the mark is void too.
local function parts(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(seq)
end
local function is_above(id, mark)
  local ms, seq = parts(id)
  local mark_ms, mark_seq = parts(mark)
  return ms > mark_ms or (ms == mark_ms and seq > mark_seq)
end
if not redis.acl_check_cmd('HSET', KEYS[1], ARGV[1], '0-0') then
  return redis.error_reply('NOPERM this user has no permission to run hset on ' .. KEYS[1])
end
local ids, is_here, all_of, at = {}, {}, {}, 3
while at <= #ARGV do
  local id = ARGV[at]
  ids[#ids + 1], is_here[id] = id, true
  all_of[#ids], at = writes(at + 1)
end
local last, written, why = redis.call('HGET', KEYS[1], ARGV[1]) or '0-0', 0, ''
local is_within = is_above(last, ids[1]) and is_above(ids[#ids], last)
local is_void = last == ARGV[2] or (is_within and not is_here[last])
if is_void then
  last = '0-0'
end
for i, id in ipairs(ids) do
  if why ~= '' then
    break
  end
  if is_above(id, last) then
    -- An entry is one write.
    local refused = refusal(all_of[i], 0) or write_all(all_of[i], 0)
    if refused then
      why = string.sub(refused, 2)
    else
      last, written = id, written + 1
    end
  end
end
if written > 0 then
  redis.call('HSET', KEYS[1], ARGV[1], last)
end
return { last, written, why, is_void and 1 or 0 }
