-- Part, after `journals`: the journal of a message in one text, for its dead letter. Of each record: its number and how many
-- bytes follow (32 bits each, big-endian), and the record.
local function journal_text(index, group, id)
  local fields, parts = redis.call('HGETALL', journal_of(index, group, id)), {}
  for i = 1, #fields, 2 do
    local number = tonumber(fields[i])
    if number then
      parts[#parts + 1] = struct.pack('>I4I4', number, #fields[i + 1]) .. fields[i + 1]
    end
  end
  return table.concat(parts)
end
