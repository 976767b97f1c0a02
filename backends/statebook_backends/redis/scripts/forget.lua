-- Delete blobs of a scope; absent ones are no error.
-- KEYS  1 blobs (hash)
-- ARGV  their names
-- Gives 1.
for i = 1, #ARGV, 1000 do
  redis.call('HDEL', KEYS[1], unpack(ARGV, i, math.min(i + 999, #ARGV)))
end
return 1
