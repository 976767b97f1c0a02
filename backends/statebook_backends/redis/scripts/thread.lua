-- Read head and cursors of a thread from one moment, and whether anything is there without a head.
-- KEYS  1 head (hash)  2 batches (stream)  3 stubs (stream)  4 cursors (hash)
-- ARGV  none
-- Gives {fields of the head, fields of the cursors, how many of the four keys exist}.
return {
  redis.call('HGETALL', KEYS[1]),
  redis.call('HGETALL', KEYS[4]),
  redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3], KEYS[4]),
}
