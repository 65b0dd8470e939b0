-- Part: the server's clock, and numbers as Redis reads them (Lua would write 1.7e+12).
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function text(number)
  return string.format('%.0f', number)
end
