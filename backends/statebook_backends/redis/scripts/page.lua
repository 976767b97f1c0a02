-- Read a page of an index in the order of its bytes, with what shows whether a member is missing (LIFE-1, STATE-9).
-- KEYS  1 members (sorted set)  2 their number
-- ARGV  1 lower and 2 upper bound as for ZRANGEBYLEX  3 how many
-- Gives {how many members there are, the number, the members}.
return {
  redis.call('ZCARD', KEYS[1]),
  redis.call('GET', KEYS[2]) or '0',
  redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3]),
}
