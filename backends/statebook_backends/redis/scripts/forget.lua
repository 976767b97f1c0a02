-- Delete blobs of a scope; absent ones are no error.
-- KEYS  1 blobs (hash)
-- ARGV  their names, at least one
-- Gives 1.
redis.call('HDEL', KEYS[1], unpack(ARGV))
return 1
