-- Take over the loading of a value, unless it is there or somebody else is loading it.
--
-- KEYS[1]  the value (string: see locks/cache/envelope.py)
-- KEYS[2]  the token of whoever is loading it (string)
-- KEYS[3]  the version of the whole entry (string); absent for an entry without one
-- ARGV[1]  the caller's random token
-- ARGV[2]  how long the caller may take, ms
-- ARGV[3]  a random version, for an entry that has none at present
-- ARGV[4]  how long a version lives after it was last used here, ms
--
-- Returns  {'fresh', value}     loaded meanwhile
--          {'mine', version}    load it, then call fill.lua with the token and the version
--          {'taken', value}     somebody else is loading; value is '' or past its TTL
--
-- A version is only ever made here, at random, so that one that was deleted, evicted or
-- flushed never comes back.

local version = '-'
if KEYS[3] then
  version = redis.call('GET', KEYS[3])
  if version then
    redis.call('PEXPIRE', KEYS[3], ARGV[4])
  else
    version = ARGV[3]
    redis.call('SET', KEYS[3], version, 'PX', ARGV[4])
  end
end

local value = redis.call('GET', KEYS[1])
if value then
  local fresh_until, of = string.match(value, '^(%d+) (%S+)\n')
  if of ~= version then
    value = false
  else
    local clock = redis.call('TIME')
    if clock[1] * 1000 + math.floor(clock[2] / 1000) < tonumber(fresh_until) then
      return {'fresh', value}
    end
  end
end

-- The caller's own token: the answer to its first try was lost.
local token = redis.call('GET', KEYS[2])
if token and token ~= ARGV[1] then
  return {'taken', value or ''}
end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
return {'mine', version}
