-- Put a name into an index, or take one out; the number beside it moves with it.
-- KEYS  1 members (sorted set)  2 their number
-- ARGV  1 'add', 'keep' a name that should be there already, or 'remove'  2 the member
-- Gives 1.
if ARGV[1] == 'remove' then
  if redis.call('ZREM', KEYS[1], ARGV[2]) == 1 and redis.call('DECR', KEYS[2]) == 0 then
    redis.call('DEL', KEYS[2])
  end
elseif redis.call('ZADD', KEYS[1], 0, ARGV[2]) == 1 then
  -- A name that comes back had been counted, unless a failover took name and count together.
  if ARGV[1] == 'add' or redis.call('ZCARD', KEYS[1]) > tonumber(redis.call('GET', KEYS[2]) or '0') then
    redis.call('INCR', KEYS[2])
  end
end
return 1
