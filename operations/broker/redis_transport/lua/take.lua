-- Acknowledges messages; takes others from queues and writes them down as unacknowledged,
-- all in one step.
--
-- KEYS[1..n]        the queues, in the order in which to look
-- KEYS[n+1..2n]     their wake lists
-- KEYS[2n+1]        hash of unacknowledged messages: receipt -> queue NUL message
-- KEYS[2n+2]        their receipts by time
-- KEYS[2n+3]        the dead letter queue
-- ARGV[1]           n
-- ARGV[2]           at most so many messages
-- ARGV[3]           start of the receipts, never used before
-- ARGV[4]           bytes above which a message is moved to the dead letters unread
-- ARGV[5..]         receipts of messages to acknowledge
--
-- Returns queue, receipt and message of each.
local n, most, limit = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[4])
local unacked, index, dead = KEYS[2 * n + 1], KEYS[2 * n + 2], KEYS[2 * n + 3]
if #ARGV > 4 then
    redis.call('ZREM', index, unpack(ARGV, 5))
    redis.call('HDEL', unacked, unpack(ARGV, 5))
end
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local taken, count = {}, 0
for i = 1, n do
    while count < most do
        -- pcall: a key of another type must not keep the other queues from being read
        local message = redis.pcall('RPOP', KEYS[i])
        if type(message) ~= 'string' then break end
        if #message > limit then
            local head = cjson.encode({
                queue = KEYS[i], why = 'the message is too large', at = now,
                id = ARGV[3] .. ':' .. count,
            })
            redis.call('LPUSH', dead, head .. '\n' .. message)
        else
            local receipt = ARGV[3] .. ':' .. count
            redis.call('HSET', unacked, receipt, KEYS[i] .. '\0' .. message)
            redis.call('ZADD', index, now, receipt)
            table.insert(taken, KEYS[i])
            table.insert(taken, receipt)
            table.insert(taken, message)
        end
        count = count + 1
    end
end
if count == 0 then
    -- What tokens there are speak of messages that are gone.
    redis.call('DEL', unpack(KEYS, n + 1, 2 * n))
else
    for i = 1, n do
        local left = redis.pcall('LLEN', KEYS[i])
        if type(left) == 'number' and left > 0
            and redis.call('EXISTS', KEYS[n + i]) == 0 then
            redis.call('RPUSH', KEYS[n + i], '1')
        end
    end
end
return taken
