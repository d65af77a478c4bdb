-- Puts unacknowledged messages back on their queues.
--
-- KEYS[1] unacknowledged   KEYS[2] receipts by time   KEYS[3] the dead letter queue
-- ARGV[1] 'head': they come next; 'tail': they come last
-- ARGV[2] start of the names of the wake lists
-- ARGV[3] start of the names of the counters of returns
-- ARGV[4] a message that comes back more often than this is moved to the dead letters
-- ARGV[5] seconds for which a return is remembered
-- ARGV[6] 'receipts', then the receipts; or 'older', then seconds: all that are older
--
-- Returns how many there were.
local receipts = {}
if ARGV[6] == 'older' then
    local time = redis.call('TIME')
    receipts = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf',
        tonumber(time[1]) - tonumber(ARGV[7]), 'LIMIT', 0, 1000)
else
    for i = 7, #ARGV do table.insert(receipts, ARGV[i]) end
end
for _, receipt in ipairs(receipts) do
    local entry = redis.call('HGET', KEYS[1], receipt)
    redis.call('ZREM', KEYS[2], receipt)
    if entry then
        redis.call('HDEL', KEYS[1], receipt)
        local cut = string.find(entry, '\0', 1, true) or 0
        local queue, message = string.sub(entry, 1, cut - 1), string.sub(entry, cut + 1)
        local counter = ARGV[3] .. redis.sha1hex(message)
        local returns = redis.call('INCR', counter)
        redis.call('EXPIRE', counter, ARGV[5])
        if returns > tonumber(ARGV[4]) then
            local time = redis.call('TIME')
            local head = cjson.encode({
                queue = queue, why = 'the message came back too often', id = receipt,
                at = tonumber(time[1]) + tonumber(time[2]) / 1000000,
            })
            redis.call('LPUSH', KEYS[3], head .. '\n' .. message)
            redis.call('DEL', counter)
        else
            redis.call(ARGV[1] == 'head' and 'RPUSH' or 'LPUSH', queue, message)
            redis.call('RPUSH', ARGV[2] .. queue, '1')
            redis.call('LTRIM', ARGV[2] .. queue, 0, 0)
        end
    end
end
return #receipts
