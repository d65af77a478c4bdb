-- All that people may want to know: state, milliseconds until it is half open, attempts a second
-- that the recovery allows, calls of the window that succeeded and failed, retries of the budget's
-- window and how many it allows; then the calls under way.
local name, wait, rate = 'closed', 0, 0
local open = left('open_until', policy.longest_cooldown)
local passed = recovering()
if open and open > 0 then
    name, wait = 'open', open
elseif open then
    name = 'half'
elseif passed then
    name, rate = 'ramp', ramp_limit(passed)
end
local allowed = policy.budget_floor * policy.budget_window / 1000
    + policy.budget_share * total('first', policy.budget_window)
local answer = {
    name, tostring(wait), tostring(rate), total('ok', policy.window), total('bad', policy.window),
    total('retry', policy.budget_window), tostring(allowed),
}
for field, value in pairs(state) do
    if string.sub(field, 1, 5) == 'call:' and tonumber(string.match(value, '^%d+')) >= now then
        table.insert(answer, value)
    end
end
return answer
