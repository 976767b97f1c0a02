-- Read a slot as a whole, from one moment (STATE-3).
-- KEYS  as in slot.inc.lua
-- ARGV  1 the key's ids  2 the member
-- Gives {'absent'}, {'live', version, length, bytes, digest, value or false, items}, or what is damaged.
local fields, wrong = load(ARGV[1], ARGV[2])
if not fields then
  return wrong
end
if fields[4] ~= 'live' then
  return {'absent'}
end
return {
  'live', fields[3], fields[5], fields[6], fields[7], redis.call('HGET', KEYS[1], 'value'),
  redis.call('LRANGE', KEYS[2], 0, -1),
}
