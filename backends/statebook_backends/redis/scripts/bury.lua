-- Delete a slot, where it is as expected; its version stays (STATE-2).
-- KEYS  as in slot.inc.lua
-- ARGV  1 'any' or 'version'  2 the version  3 the key's ids, or empty where its name is enough  4 the member
-- Gives 1, or an array as in slot.inc.lua.
local ids = ARGV[3]
if ids == '' then
  ids = redis.call('HGET', KEYS[1], 'key') or ''
end
local fields, wrong = load(ids, ARGV[4])
if not fields then
  return wrong
end
local conflict = against(fields, ARGV[1], ARGV[2])
if conflict then
  return conflict
end
if fields[4] ~= 'live' then
  return {'absent'}
end
fields[4], fields[5], fields[6], fields[7] = 'deleted', '0', '0', ''
redis.call('HSET', KEYS[1], 'state', fields[4], 'length', '0', 'bytes', '0', 'digest', '', 'seal', seal(fields))
redis.call('HDEL', KEYS[1], 'value')
redis.call('DEL', KEYS[2])
redis.call('ZREM', KEYS[3], ARGV[4])
if redis.call('DECR', KEYS[4]) == 0 then
  redis.call('DEL', KEYS[4])
end
return 1
