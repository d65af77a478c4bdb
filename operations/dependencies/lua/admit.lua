-- May a call be made? ARGV[2] names who asks; ARGV[3]: '1' for the first call of an attempt;
-- ARGV[4]: '1' for an attempt that is a retry; ARGV[5]: how many may call at once in its worker,
-- 0 for any; ARGV[6]: its worker.
-- Returns the answer (go, probe, open, ramp, budget) and the milliseconds to wait.
local open = left('open_until', policy.longest_cooldown)
if open then
    if open > 0 then
        return {'open', open}
    end
    local probing = state.probe and left('probe_until', policy.probe) or 0
    if probing > 0 then
        return {'open', math.min(probing, 1000)}
    end
    redis.call('HSET', key, 'probe', ARGV[2])
    set('probe_until', now + policy.probe)
    begin_call(ARGV[2], ARGV[5], ARGV[6])
    return {'probe', 0}
end
if ARGV[3] ~= '1' then
    begin_call(ARGV[2], ARGV[5], ARGV[6])
    return {'go', 0}
end
local retry = ARGV[4] == '1'
if retry then
    local allowed = policy.budget_floor * policy.budget_window / 1000
        + policy.budget_share * total('first', policy.budget_window)
    if total('retry', policy.budget_window) + 1 > allowed then
        return {'budget', policy.budget_window / 10}
    end
end
local passed = recovering()
if passed then
    local second = math.floor(passed / 1000)
    local field = string.format('ramp:%.0f', second)
    if (number(field) or 0) >= ramp_limit(second * 1000) then
        return {'ramp', 1000 - passed % 1000}
    end
    redis.call('HINCRBY', key, field, 1)
else
    drop_slices('ramp')
end
count(retry and 'retry' or 'first', policy.budget_window)
begin_call(ARGV[2], ARGV[5], ARGV[6])
return {'go', 0}
