-- Store a value, if nothing has invalidated it since its loading began.
--
-- KEYS[1]  the value    KEYS[2]  the token    KEYS[3]  the entry's version, or absent
-- ARGV[1]  the token the caller put there with begin.lua
-- ARGV[2]  the version that begin.lua answered
-- ARGV[3]  for how long the value is fresh from now on, ms
-- ARGV[4]  for how long it may be served after that while somebody loads it anew, ms
-- ARGV[5]  the value
--
-- Returns  1 stored, 0 not
--
-- An invalidation deletes the token (or the version) together with the value. The token
-- must be the caller's own and there: one that is absent, because it expired, was evicted
-- or flushed, may have been deleted as well, so it never matches.

if redis.call('GET', KEYS[2]) ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[2])
if KEYS[3] and redis.call('GET', KEYS[3]) ~= ARGV[2] then
  return 0
end
local clock = redis.call('TIME')
local fresh_until = clock[1] * 1000 + math.floor(clock[2] / 1000) + ARGV[3]
redis.call('SET', KEYS[1], string.format('%.0f %s\n', fresh_until, ARGV[2]) .. ARGV[5],
  'PX', ARGV[3] + ARGV[4])
return 1
