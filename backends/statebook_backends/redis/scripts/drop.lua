-- Remove batches that a committed trim has put below first_seq; the event ids of the newest stay behind as stubs.
-- KEYS  1 head (hash)  2 batches (stream)  3 stubs (stream)
-- ARGV  1 the journal_id that the head must have  2 the least id that may stay
--       3 the id of the oldest stub that is still of use  4... id, meta and ids of each new stub, ascending
-- Gives 1, or {} where the journal is another one.
if redis.call('HGET', KEYS[1], 'journal_id') ~= ARGV[1] then
  return {}
end
for i = 4, #ARGV, 3 do
  local added = redis.pcall('XADD', KEYS[3], ARGV[i], 'meta', ARGV[i + 1], 'ids', ARGV[i + 2])
  if type(added) == 'table' and added['err'] and not string.find(added['err'], 'equal or smaller', 1, true) then
    return added -- one that is there already is no error
  end
end
if redis.call('EXISTS', KEYS[3]) == 1 then
  redis.call('XTRIM', KEYS[3], 'MINID', ARGV[3])
end
redis.call('XTRIM', KEYS[2], 'MINID', ARGV[2])
return 1
