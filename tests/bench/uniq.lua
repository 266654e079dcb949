-- As post.lua, with two field values that no other request has: what traced clients send.
local begin = '{"model":"m","max_tokens":16,"temperature":0.7,"top_p":0.95,"seed":1,'
  .. '"stream":false,"prompt":"'
local body = begin .. string.rep("a", 300 - #begin - 2) .. '"}'
local head = "POST /v1/completions HTTP/1.1\r\nHost: gateway\r\n"
  .. "Content-Type: application/json\r\nAuthorization: Bearer sk-1234567890abcdef\r\n"
  .. "User-Agent: OpenAI/Python 1.99.0\r\nAccept: application/json\r\n"
  .. "Content-Length: " .. #body .. "\r\n"
local own = "traceparent: 00-%032x-%016x-01\r\nX-Request-Id: %x\r\n\r\n"
local sent = 0

request = function()
  sent = sent + 1
  return head .. string.format(own, sent, sent, sent) .. body
end
