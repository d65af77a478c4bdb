-- The state without changing it: closed, open, half or ramp, and a number: milliseconds
-- until it is half open, or the attempts a second that the recovery allows.
local open = left('open_until', policy.longest_cooldown)
if open and open > 0 then
    return {'open', open}
elseif open then
    local probing = state.probe and left('probe_until', policy.probe) or 0
    return probing > 0 and {'open', math.min(probing, 1000)} or {'half', 0}
end
local passed = recovering()
if passed then
    return {'ramp', ramp_limit(passed)}
end
return {'closed', 0}
