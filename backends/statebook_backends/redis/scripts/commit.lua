-- Replace the head of a scope and store blobs, where its token is the expected one (ATOM-1, ATOM-3, ATOM-4).
-- KEYS  1 head (hash: token, data)  2 blobs (hash)
-- ARGV  1 the token that must be there, empty for none  2 the new token  3 the head  4... name and content of each blob
-- Gives 1, {} where the token is another one, {name} where a blob of that name has other content.
if (redis.call('HGET', KEYS[1], 'token') or '') ~= ARGV[1] then
  return {}
end
local new = {}
for i = 4, #ARGV, 2 do
  local there = redis.call('HGET', KEYS[2], ARGV[i])
  if not there then
    new[#new + 1] = i
  elseif there ~= ARGV[i + 1] then
    return {ARGV[i]}
  end
end
for _, i in ipairs(new) do
  redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])
end
redis.call('HSET', KEYS[1], 'token', ARGV[2], 'data', ARGV[3])
return 1
