-- Moves an unacknowledged message to the dead letter queue, whole.
--
-- KEYS[1] unacknowledged   KEYS[2] receipts by time   KEYS[3] the dead letter queue
-- ARGV[1] the receipt      ARGV[2] JSON object about it
--
-- Returns 1, or 0 when the receipt is not valid any more: somebody else has the message.
local entry = redis.call('HGET', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
if not entry then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
local cut = string.find(entry, '\0', 1, true) or 0
local time = redis.call('TIME')
local head = cjson.decode(ARGV[2])
head.queue = string.sub(entry, 1, cut - 1)
head.at = tonumber(time[1]) + tonumber(time[2]) / 1000000
head.id = ARGV[1]
redis.call('LPUSH', KEYS[3], cjson.encode(head) .. '\n' .. string.sub(entry, cut + 1))
return 1
