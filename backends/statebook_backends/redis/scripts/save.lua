-- Save a document, where the slot is as expected (STATE-1).
-- KEYS  as in slot.inc.lua
-- ARGV  1 'any', 'absent' or 'version'  2 the version  3 the key's ids  4 the member  5 '1' where the session is indexed
--       6 the value  7 its digest
-- Gives the new version, or an array as in slot.inc.lua.
local fields, wrong = load(ARGV[3], ARGV[4])
if not fields then
  return wrong
end
if fields[4] == 'live' then
  local size = redis.call('HSTRLEN', KEYS[1], 'value')
  if tostring(size) ~= fields[6] then
    return {'damaged', fields[6] .. ' bytes', size .. ' bytes'}
  end
  if size <= 65536 and redis.sha1hex(redis.call('HGET', KEYS[1], 'value') or '') ~= fields[7] then
    return {'damaged', fields[7], 'another value'}
  end
end
local conflict = against(fields, ARGV[1], ARGV[2])
if conflict then
  return conflict
end
if ARGV[5] ~= '1' and redis.call('EXISTS', KEYS[3]) == 0 then
  return {'index'}
end
redis.call('HSET', KEYS[1], 'value', ARGV[6])
return store(fields, ARGV[4], '0', tostring(#ARGV[6]), ARGV[7])
