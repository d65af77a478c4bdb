-- Free a lease if it is still its owner's, and wake one of those who wait for it.
--
-- KEYS[1]  the lease (hash)
-- KEYS[2]  its waiters (sorted set)
-- KEYS[3]  its wake list
-- KEYS[4]  the counters (hash)
-- ARGV[1]  owner
-- ARGV[2…] counters to add: name, amount, name, amount, …
--
-- Returns  1 freed, 0 nobody held it, -1 somebody else holds it
--
-- Whatever needs memory is asked for with pcall and after the DEL: a server that is full
-- must still let go of leases.

local owner = redis.call('HGET', KEYS[1], 'owner')
local freed = 0
if owner == ARGV[1] then
  redis.call('DEL', KEYS[1])
  freed = 1
  if redis.call('EXISTS', KEYS[2]) == 1 then
    local clock = redis.call('TIME')
    local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
    if redis.call('ZCOUNT', KEYS[2], now, '+inf') > 0 and redis.call('LLEN', KEYS[3]) == 0 then
      redis.pcall('LPUSH', KEYS[3], '1')
      redis.pcall('PEXPIRE', KEYS[3], 5000)
    end
  end
elseif owner then
  freed = -1
end
for at = 2, #ARGV, 2 do
  redis.pcall('HINCRBY', KEYS[4], ARGV[at], ARGV[at + 1])
end
return freed
