-- Write a cursor's record, where the record and what the head says about its place are still what was judged (CURSOR-3).
-- KEYS  1 head (hash)  2 cursors (hash)
-- ARGV  1 journal_id, 2 state and 3 first_seq that the head must have  4 a seq that its last_seq must reach
--       5 the exporter  6 the record that must be there, empty for none  7 the new record
-- Gives 1, or {fields of the head, the record that is there or false}.
local function reaches(last, seq) -- decimals without leading zeros, compared as text: no double is involved
  return #last > #seq or (#last == #seq and last >= seq)
end
local head = redis.call('HMGET', KEYS[1], 'journal_id', 'state', 'first_seq', 'last_seq')
local there = redis.call('HGET', KEYS[2], ARGV[5])
if head[1] ~= ARGV[1] or head[2] ~= ARGV[2] or head[3] ~= ARGV[3] or not head[4] or not reaches(head[4], ARGV[4])
  or (there or '') ~= ARGV[6] then
  return {redis.call('HGETALL', KEYS[1]), there}
end
redis.call('HSET', KEYS[2], ARGV[5], ARGV[7])
return 1
