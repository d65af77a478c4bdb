-- Take over the loading of a value, unless it is there or somebody else is loading it.
--
-- KEYS[1]  the value (string: see locks/cache/envelope.py)
-- KEYS[2]  the token of whoever is loading it (string)
-- KEYS[3]  the version of the whole entry (string); absent for an entry without one
-- ARGV[1]  the caller's random token
-- ARGV[2]  how long the caller may take, ms
-- ARGV[3]  for how long any value of the entry can be fresh, ms
-- ARGV[4]  for how long one may be served after that, ms
-- ARGV[5]  a random version, for an entry that has none at present
-- ARGV[6]  how long a version lives after it was last used here, ms
--
-- Returns  {'fresh', value}     loaded meanwhile
--          {'mine', version}    load it, then call fill.lua with the token and the version
--          {'taken', value}     somebody else is loading; value is '' or past its TTL
--
-- A version is only ever made here, at random, so that one that was deleted, evicted or
-- flushed never comes back.

-- What is no string was left by other code, and is nothing.
local function text(key)
  local found = redis.pcall('GET', key)
  return type(found) == 'string' and found
end

local version = '-'
if KEYS[3] then
  version = text(KEYS[3])
  if version and string.match(version, '^%x+$') then
    redis.call('PEXPIRE', KEYS[3], ARGV[6])
  else
    version = ARGV[5]
    redis.call('SET', KEYS[3], version, 'PX', ARGV[6])
  end
end

local value = text(KEYS[1])
local left -- ms until it is not fresh any more
if value then
  local fresh_until, of = string.match(value, '^(%d+) (%S+)\n')
  if of == version and #fresh_until <= 15 then
    local clock = redis.call('TIME')
    left = tonumber(fresh_until) - clock[1] * 1000 - math.floor(clock[2] / 1000)
    if left > 0 and left <= tonumber(ARGV[3]) then
      return {'fresh', value}
    end
  end
end

-- The caller's own token: the answer to its first try was lost.
local token = text(KEYS[2])
if token and token ~= ARGV[1] then
  local may_be_served = left and left <= 0 and left > -tonumber(ARGV[4])
  return {'taken', may_be_served and value or ''}
end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
return {'mine', version}
