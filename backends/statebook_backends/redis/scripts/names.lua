-- Read the names of a scope's blobs.
-- KEYS  1 blobs (hash)
-- ARGV  none
-- Gives them, in no order.
return redis.call('HKEYS', KEYS[1])
