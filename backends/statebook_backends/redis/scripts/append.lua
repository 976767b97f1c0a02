-- Append one batch, where the head is still the one that was judged (APPEND-2, CLAIM-2).
-- KEYS  1 head (hash)  2 batches (stream)
-- ARGV  1-5 what the head must say: seal, nonce, last_seq, epoch, claim_nonce; epoch and claim_nonce are the fence
--       6-11 what it says then: generation, nonce, last_seq, checkpoint_seq, chain, seal
--       12 meta and 13 body of the batch
-- Gives 1, or the fields of the head that is there, or {'place'} where a batch stands behind the head.
local head = redis.call('HMGET', KEYS[1], 'seal', 'nonce', 'last_seq', 'epoch', 'claim_nonce')
for i = 1, 5 do
  if head[i] ~= ARGV[i] then
    return redis.call('HGETALL', KEYS[1])
  end
end
local added = redis.pcall('XADD', KEYS[2], ARGV[8] .. '-0', 'meta', ARGV[12], 'body', ARGV[13])
if type(added) == 'table' and added['err'] then
  if string.find(added['err'], 'equal or smaller', 1, true) then
    return {'place'}
  end
  return added
end
redis.call('HSET', KEYS[1], 'generation', ARGV[6], 'nonce', ARGV[7], 'last_seq', ARGV[8], 'checkpoint_seq', ARGV[9],
  'chain', ARGV[10], 'seal', ARGV[11])
return 1
