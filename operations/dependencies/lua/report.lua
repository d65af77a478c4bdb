-- What became of a call. ARGV[2] names who asked; ARGV[3]: ok, bad, or none (nothing was
-- learnt of the dependency); ARGV[4]: milliseconds it asked to be left alone for, or 0.
-- Returns opened, closed or nothing new ('').
local result, wished = ARGV[3], tonumber(ARGV[4])

local function open(cooldown)
    cooldown = math.min(cooldown, policy.longest_cooldown)
    set('cooldown', cooldown)
    set('open_until', now + math.min(math.max(cooldown, wished), policy.longest_cooldown))
    drop('recovered_at')
    drop_slices('ok')
    drop_slices('bad')
    drop_slices('ramp')
    redis.call('PEXPIRE', key, policy.kept)
    return 'opened'
end

drop('call:' .. ARGV[2])
if state.open_until then
    if state.probe ~= ARGV[2] then
        return '' -- begun before it opened
    end
    drop('probe')
    drop('probe_until')
    if result == 'bad' then
        open(2 * (number('cooldown') or policy.cooldown))
    elseif result == 'ok' then
        drop('open_until')
        drop('streak')
        set('recovered_at', now)
        set('last_ok', now)
        return 'closed'
    end
    return ''
end
if result == 'none' then
    return ''
end
count(result, policy.window)
if result == 'ok' then
    drop('streak')
    set('last_ok', now)
    redis.call('PEXPIRE', key, policy.kept)
    return ''
end
set('streak', (number('streak') or 0) + 1)
redis.call('PEXPIRE', key, policy.kept)
local bad = total('bad', policy.window)
local volume = bad + total('ok', policy.window)
local last_ok = number('last_ok')
local silent = not last_ok or now - last_ok > policy.window or last_ok > now
-- The second rule is for calls so slow that a window never holds enough of them.
if (volume >= policy.minimum and bad >= policy.ratio * volume)
    or (state.streak + 0 >= policy.minimum and silent) then
    return open(recovering() and 2 * (number('cooldown') or 0) or policy.cooldown)
end
return ''
