-- Raise first_seq, where head and cursors are still those that were judged (LIFE-2).
-- KEYS  1 head (hash)  2 cursors (hash)
-- ARGV  1 the seal and 2 the nonce that the head must have  3 how many cursors there must be
--       4... the fields of the new head, 28 words, then each cursor's exporter and record
-- Gives 1, or {fields of the head, fields of the cursors} as they are.
local head = redis.call('HMGET', KEYS[1], 'seal', 'nonce')
local same = head[1] == ARGV[1] and head[2] == ARGV[2] and redis.call('HLEN', KEYS[2]) == tonumber(ARGV[3])
for i = 32, #ARGV, 2 do
  same = same and redis.call('HGET', KEYS[2], ARGV[i]) == ARGV[i + 1]
end
if not same then
  return {redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2])}
end
redis.call('HSET', KEYS[1], unpack(ARGV, 4, 31))
return 1
