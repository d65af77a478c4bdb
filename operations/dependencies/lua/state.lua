-- Put in front of the other scripts: the state of one dependency, a hash at KEYS[1].
--
--   ok:N bad:N        calls that succeeded and failed in the N-th slice of time
--   first:N retry:N   attempts that called, likewise
--   streak last_ok    failures since the last success, and when that was
--   open_until        the breaker is open until then, and half open after
--   cooldown          how long it was open last
--   probe probe_until who may try, and until when nobody else may
--   recovered_at      when a probe succeeded last
--   ramp:N            attempts let through in the N-th second of the recovery
--   call:WHO          a call under way: until when it counts as such, its worker's places, and
--                     its worker
--
-- ARGV[1] is the policy, a JSON object. Times are milliseconds of the server's clock. That
-- may be set: an instant further away than it can be counts as the furthest it can be.
local key = KEYS[1]
local policy = cjson.decode(ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local state = {}
local flat = redis.call('HGETALL', key)
for i = 1, #flat, 2 do
    state[flat[i]] = flat[i + 1]
end

local function number(name)
    local value = state[name]
    return value and tonumber(value)
end

local function left(name, most)
    local instant = number(name)
    if not instant then
        return nil
    end
    return math.max(0, math.min(instant - now, most))
end

local function set(name, value)
    state[name] = tostring(value)
    redis.call('HSET', key, name, string.format('%.0f', value))
end

local function drop(name)
    if state[name] then
        state[name] = nil
        redis.call('HDEL', key, name)
    end
end

local function drop_slices(name)
    for field in pairs(state) do
        if string.sub(field, 1, #name + 1) == name .. ':' then
            drop(field)
        end
    end
end

local function slice_of(window)
    return math.floor(now / (window / 10))
end

local function count(name, window)
    local field = string.format('%s:%.0f', name, slice_of(window))
    redis.call('HINCRBY', key, field, 1)
    state[field] = tostring((number(field) or 0) + 1)
end

-- The sum over the window; slices outside are dropped.
local function total(name, window)
    local latest, sum = slice_of(window), 0
    for field, value in pairs(state) do
        local n = string.match(field, '^' .. name .. ':(%d+)$')
        if n then
            n = tonumber(n)
            if n > latest - 10 and n <= latest then
                sum = sum + tonumber(value)
            else
                drop(field)
            end
        end
    end
    return sum
end

-- How long the recovery has been going on; nil: there is none.
local function recovering()
    local since = number('recovered_at')
    local passed = since and now - since
    if passed and passed >= 0 and passed < policy.ramp then
        return passed
    end
    return nil
end

-- Attempts that may call in this second of the recovery.
local function ramp_limit(passed)
    return math.max(1, math.floor(policy.ramp_start * 2 ^ (passed / policy.ramp_doubling)))
end

local function begin_call(who, places, worker)
    for field, value in pairs(state) do
        if string.sub(field, 1, 5) == 'call:' and tonumber(string.match(value, '^%d+')) < now then
            drop(field) -- its process was killed
        end
    end
    redis.call('HSET', key, 'call:' .. who,
        string.format('%.0f %s %s', now + policy.probe, places, worker))
    redis.call('PEXPIRE', key, policy.kept)
end
