-- Append items to a list, or replace it, where it is as expected (STATE-1, STATE-7).
-- KEYS  as in slot.inc.lua
-- ARGV  1 'append', 'any', 'absent' or 'version'  2 the length for 'append', else the version  3 the key's ids
--       4 the member  5 '1' where the session is indexed  6 how many bytes a list may have  7... the items
-- Gives the new version, {'limit', bytes}, or an array as in slot.inc.lua.
local fields, wrong = load(ARGV[3], ARGV[4])
if not fields then
  return wrong
end
if tostring(redis.call('LLEN', KEYS[2])) ~= fields[5] then
  return {'damaged', fields[5] .. ' items', redis.call('LLEN', KEYS[2]) .. ' items'}
end
local append = ARGV[1] == 'append'
if append then
  if fields[5] ~= ARGV[2] then
    return {'conflict', fields[4], fields[3], fields[5]}
  end
else
  local conflict = against(fields, ARGV[1], ARGV[2])
  if conflict then
    return conflict
  end
end
local bytes, digest = 0, ''
if append then
  bytes, digest = tonumber(fields[6]), fields[7]
end
for i = 7, #ARGV do
  bytes = bytes + #ARGV[i]
end
if bytes > tonumber(ARGV[6]) then
  return {'limit', tostring(bytes)}
end
if ARGV[5] ~= '1' and redis.call('EXISTS', KEYS[3]) == 0 then
  return {'index'}
end
if not append then
  redis.call('DEL', KEYS[2])
end
for i = 7, #ARGV do
  digest = redis.sha1hex(digest .. ':' .. #ARGV[i] .. ':' .. ARGV[i])
end
for i = 7, #ARGV, 1000 do
  redis.call('RPUSH', KEYS[2], unpack(ARGV, i, math.min(i + 999, #ARGV)))
end
return store(fields, ARGV[4], tostring(redis.call('LLEN', KEYS[2])), string.format('%.0f', bytes), digest)
