-- Give the loading of a value up, so that somebody else can try.
--
-- KEYS[1]  the token    ARGV[1]  the caller's
--
-- Returns  1 given up, 0 it was not the caller's any more

if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
