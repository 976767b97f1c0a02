-- Read what a listing needs of a head.
-- KEYS  1 head (hash)
-- ARGV  none
-- Gives {state or false, key or false}.
return redis.call('HMGET', KEYS[1], 'state', 'key')
