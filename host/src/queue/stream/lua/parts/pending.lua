-- Part, after `epoch`: pending deliveries of the stream KEYS[1] and the group ARGV[1], for the consumer
-- ARGV[2].
--
-- Every `step`-th argument from ARGV[first] on.
local function arguments(first, step)
  local out = {}
  for i = first, #ARGV, step do
    out[#out + 1] = ARGV[i]
  end
  return out
end
-- Read deliveries of a consumer by one command: `ids` are in ascending order. A delivery that this does
-- not find is asked for by itself.
local known = {}
-- Counts as numbers: most deliveries have the same.
local number = setmetatable({}, { __index = function(numbers, text)
  numbers[text] = tonumber(text)
  return numbers[text]
end })
local function look(ids, consumer)
  if #ids > 2 then
    local held = redis.call('XPENDING', KEYS[1], ARGV[1], ids[1], ids[#ids], 2 * #ids, consumer)
    for _, delivery in ipairs(held) do
      known[delivery[1]] = delivery
    end
  end
end
-- The delivery { id, consumer, idle ms, count }, or nil. It is the one before the first write.
local function pending(id)
  return known[id] or redis.call('XPENDING', KEYS[1], ARGV[1], id, id, '1')[1]
end
-- Why this host must not change a delivery: 'gone' | 'stolen'; nil if it owns the delivery with one of
-- these counts, or with any count if none is given. Fails if the group was made again, and does not have
-- the delivery: it is not gone, and the host must bring it back.
local function obstacle(id, count, other)
  local held = pending(id)
  if not held then
    same_group()
    return 'gone'
  end
  local fits = not count or held[4] == tonumber(count) or held[4] == tonumber(other)
  return (held[2] ~= ARGV[2] or not fits) and 'stolen' or nil
end
-- The obstacles of deliveries with these counts, false where it has no obstacle.
local function obstacles(ids, counts, others)
  look(ids, ARGV[2])
  local words = {}
  for i, id in ipairs(ids) do
    -- Those that `look` has found are this host's.
    local held, count = known[id], counts and counts[i]
    local fits = held and (not count or held[4] == number[count])
    words[i] = not fits and obstacle(id, count, others and others[i]) or false
  end
  return words
end
-- The reply of a script: the words, or one for all deliveries, if all are done.
local function told(words)
  for i = 1, #words do
    if words[i] ~= 'done' then
      return words
    end
  end
  return 'done'
end
-- Remove the records of the deliveries with the word 'done' from the set of parked deliveries. A script that has
-- written does not fail because of a set of another type.
local function forget_records(records, ids, words)
  local gone = { 'ZREM', records }
  for i, id in ipairs(ids) do
    gone[#gone + 1] = words[i] == 'done' and id or nil
  end
  if #gone > 2 then
    redis.pcall(unpack(gone))
  end
end
-- Take the deliveries without a word for a consumer, and give each a word: 'done', or 'trimmed': its entry
-- is gone, and the delivery with it. `counts` has the count that each keeps ('' = as it is): one command takes
-- those with the same count.
local function hold(consumer, ids, words, counts, ...)
  local commands, order = {}, {}
  for i, id in ipairs(ids) do
    local count = counts[i]
    if not words[i] then
      if not commands[count] then
        commands[count] = { 'XCLAIM', KEYS[1], ARGV[1], consumer, '0' }
        order[#order + 1] = count
      end
      table.insert(commands[count], id)
    end
  end
  -- Where one command took them all, it does not matter which.
  local held, is_whole = {}, #order == 1
  for _, count in ipairs(order) do
    local command = commands[count]
    local asked = #command - 5
    for _, option in ipairs({ 'JUSTID', ... }) do
      command[#command + 1] = option
    end
    if count ~= '' then
      command[#command + 1] = 'RETRYCOUNT'
      command[#command + 1] = count
    end
    local taken = redis.call(unpack(command))
    is_whole = is_whole and #taken == asked
    if not is_whole then
      for _, id in ipairs(taken) do
        held[id] = true
      end
    end
  end
  for i, id in ipairs(ids) do
    words[i] = words[i] or ((is_whole or held[id]) and 'done' or 'trimmed')
  end
  return words
end
