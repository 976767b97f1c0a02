-- Read two fields of a hash.
-- KEYS  1 the hash
-- ARGV  1 and 2 the fields
-- Gives both, false where there is none.
return redis.call('HMGET', KEYS[1], ARGV[1], ARGV[2])
