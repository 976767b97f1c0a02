-- Read the batch behind a seq and the one before it, with the head's journal_id, from one moment (APPEND-1).
-- KEYS  1 head (hash)  2 batches (stream)
-- ARGV  1 the seq
-- Gives {journal_id, entries behind, entries before}, at most one each.
return {
  redis.call('HGET', KEYS[1], 'journal_id'),
  redis.call('XRANGE', KEYS[2], '(' .. ARGV[1] .. '-0', '+', 'COUNT', 1),
  redis.call('XREVRANGE', KEYS[2], ARGV[1] .. '-0', '-', 'COUNT', 1),
}
