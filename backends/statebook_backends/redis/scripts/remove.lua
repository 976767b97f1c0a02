-- Remove the head of a scope, where its token is the expected one.
-- KEYS  1 head (hash: token, data)
-- ARGV  1 the token
-- Gives 1, or {} where the token is another one.
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then
  return {}
end
redis.call('DEL', KEYS[1])
return 1
