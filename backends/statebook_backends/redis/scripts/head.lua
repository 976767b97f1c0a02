-- Write a head, where it is still the one that was judged: claim, heartbeat, release, barrier, delete, purge (HEAD-1).
-- KEYS  1 head (hash)  2 batches (stream)  3 stubs (stream)  4 cursors (hash)
-- ARGV  1 the seal that the head must have, empty for none  2 its nonce, empty for none
--       3 'keep' the batches, 'empty' them, or 'purge' everything
--       4... the fields of the new head, name and value in turn; none for 'purge'
-- Gives 1, or the fields of the head that is there, or {'orphans'} where there is none although batches are there.
local head = redis.call('HMGET', KEYS[1], 'seal', 'nonce')
if (head[1] or '') ~= ARGV[1] or (head[2] or '') ~= ARGV[2] then
  return redis.call('HGETALL', KEYS[1])
end
if ARGV[1] == '' and redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3], KEYS[4]) > 0 then
  return {'orphans'}
end
if ARGV[3] == 'purge' then
  redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
  return 1
end
redis.call('HSET', KEYS[1], unpack(ARGV, 4))
if ARGV[3] == 'empty' then
  redis.call('DEL', KEYS[2], KEYS[3])
end
return 1
