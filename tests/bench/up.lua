-- 8 MiB up, a small answer down.
local begin = '{"model":"m","stream":false,"prompt":"'
wrk.method = "POST"
wrk.body = begin .. string.rep("a", 8388608 - #begin - 2) .. '"}'
wrk.headers["Content-Type"] = "application/json"
