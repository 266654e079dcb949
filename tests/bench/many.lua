-- As post.lua, for many models in turn: `-- 100` behind the URL for m0 to m99, `-- 1` for m0 alone.
local rest = '","max_tokens":16,"temperature":0.7,"top_p":0.95,"seed":1,"stream":false,"prompt":"'
local requests, sent = {}, 0

init = function(args)
  local fields = {
    ["Content-Type"] = "application/json",
    ["Authorization"] = "Bearer sk-1234567890abcdef",
    ["User-Agent"] = "OpenAI/Python 1.99.0",
    ["Accept"] = "application/json",
  }
  for k = 0, tonumber(args[1]) - 1 do
    local begin = '{"model":"m' .. k .. rest
    local body = begin .. string.rep("a", 300 - #begin - 2) .. '"}'
    requests[#requests + 1] = wrk.format("POST", nil, fields, body)
  end
end

request = function()
  sent = sent + 1
  return requests[sent % #requests + 1]
end
