-- Raise first_seq, where head and cursors are still those that were judged, and remove what is before it (LIFE-2).
-- Of the removed batches that are among the newest, the event ids stay behind as stubs (APPEND-1).
-- KEYS  1 head (hash)  2 batches (stream)  3 stubs (stream)  4 cursors (hash)
-- ARGV  1 the seal and 2 the nonce that the head must have  3 the least id of a batch that may stay
--       4 the id of the oldest stub that is still of use  5 how many cursors there must be
--       6-33 the fields of the new head, name and value in turn  34... each cursor's exporter and record
--       then id, meta and ids of each new stub, ascending
-- Gives 1, or {fields of the head, fields of the cursors} as they are.
local head = redis.call('HMGET', KEYS[1], 'seal', 'nonce')
local cursors = tonumber(ARGV[5])
local same = head[1] == ARGV[1] and head[2] == ARGV[2] and redis.call('HLEN', KEYS[4]) == cursors
for i = 34, 33 + 2 * cursors, 2 do
  same = same and redis.call('HGET', KEYS[4], ARGV[i]) == ARGV[i + 1]
end
if not same then
  return {redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[4])}
end
redis.call('HSET', KEYS[1], unpack(ARGV, 6, 33))
for i = 34 + 2 * cursors, #ARGV, 3 do
  redis.call('XADD', KEYS[3], ARGV[i], 'meta', ARGV[i + 1], 'ids', ARGV[i + 2])
end
if redis.call('EXISTS', KEYS[3]) == 1 then
  redis.call('XTRIM', KEYS[3], 'MINID', ARGV[4])
end
redis.call('XTRIM', KEYS[2], 'MINID', ARGV[3])
return 1
