-- Take a lease, or say who stands in the way.
--
-- KEYS[1]  the lease (hash)
-- KEYS[2]  its waiters (sorted set)
-- KEYS[3]  the fence counter (hash)
-- KEYS[4]  the counters (hash)
-- ARGV[1]  owner
-- ARGV[2]  TTL, ms
-- ARGV[3]  how long the caller will wait if refused, ms; 0: it does not wait (any more)
-- ARGV[4]  who the owner is, for people: JSON of host, pid, name of the process
-- ARGV[5]  '' if no durable fence is wanted; else a random mark, used if a block of fences
--          must be asked for
-- ARGV[6]  '' or a block that was fetched: 'first last mark', the mark it was asked for under
-- ARGV[7…] counters to add: name, amount, name, amount, …
--
-- Returns  {'granted', fence}           fence is '0' when none was wanted
--          {'held', ms left, waiters}
--          {'block', mark}              fetch a block, call again with it and the mark
--
-- Called twice with one owner (its first answer was lost) it grants twice, with one fence.
-- The owner of a lease that ran out is nobody: the key is gone.

local owner = redis.call('HGET', KEYS[1], 'owner')

local function count()
  for at = 7, #ARGV, 2 do
    redis.call('HINCRBY', KEYS[4], ARGV[at], ARGV[at + 1])
  end
end

if owner == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  count()
  return {'granted', redis.call('HGET', KEYS[1], 'fence')}
end

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local wait = tonumber(ARGV[3])

if owner then
  if wait > 0 then
    redis.call('ZADD', KEYS[2], now + wait, ARGV[1])
    if redis.call('PTTL', KEYS[2]) < wait then
      redis.call('PEXPIRE', KEYS[2], wait)
    end
  else
    redis.call('ZREM', KEYS[2], ARGV[1])
  end
  count()
  return {'held', redis.call('PTTL', KEYS[1]), redis.call('ZCARD', KEYS[2])}
end

local fence = '0'
if ARGV[5] ~= '' then
  -- A restart may bring back an old snapshot, and a replica that is promoted may lag
  -- behind. Then the counter is older than fences already given out, and either the run
  -- id or the replication id differs from the one the block was given to.
  local info = redis.call('INFO', 'server', 'replication')
  local server = string.match(info, 'run_id:(%w+)') .. string.match(info, 'master_replid:(%w+)')
  local block = redis.call('HMGET', KEYS[3], 'server', 'next', 'last', 'mark')
  local here = block[1] == server

  if not (here and block[2] and tonumber(block[2]) <= tonumber(block[3])) then
    -- A block counts only if it was fetched after this server, in this state, asked for
    -- it; one fetched before a flush could be older than fences given out since.
    local first, last, asked = string.match(ARGV[6], '(%d+) (%d+) (%w+)')
    if here and block[4] and block[4] == asked then
      redis.call('DEL', KEYS[3])
      redis.call('HSET', KEYS[3], 'server', server, 'next', first, 'last', last)
    else
      local mark = here and block[4] or ARGV[5]
      redis.call('DEL', KEYS[3])
      redis.call('HSET', KEYS[3], 'server', server, 'mark', mark)
      return {'block', mark}
    end
  end
  fence = tostring(redis.call('HGET', KEYS[3], 'next'))
  redis.call('HINCRBY', KEYS[3], 'next', 1)
end

redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'fence', fence, 'since', now, 'who', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('ZREM', KEYS[2], ARGV[1])
count()
return {'granted', fence}
