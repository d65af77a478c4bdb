-- Set a lease's whole TTL again, if it is still its owner's.
--
-- KEYS[1]  the lease (hash)
-- ARGV[1]  owner
-- ARGV[2]  TTL, ms
--
-- Returns  1 renewed, 0 gone or in other hands

if redis.call('HGET', KEYS[1], 'owner') == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 1
end
return 0
