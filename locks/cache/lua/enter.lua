-- Take one of the places for loads that nobody stores.
--
-- KEYS[1]  who has a place (sorted set, scored by when it ends; server's clock, ms)
-- ARGV[1]  a random name    ARGV[2]  for how long at most, ms    ARGV[3]  how many places
--
-- Returns  1 taken (give it back with ZREM), 0 all are taken; asked twice, it takes one

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if not redis.call('ZSCORE', KEYS[1], ARGV[1])
  and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then
  return 0
end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
