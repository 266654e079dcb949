-- One request, again and again: a 300 byte body under the same head.
local begin = '{"model":"m","max_tokens":16,"temperature":0.7,"top_p":0.95,"seed":1,'
  .. '"stream":false,"prompt":"'
wrk.method = "POST"
wrk.body = begin .. string.rep("a", 300 - #begin - 2) .. '"}'
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Authorization"] = "Bearer sk-1234567890abcdef"
wrk.headers["User-Agent"] = "OpenAI/Python 1.99.0"
wrk.headers["Accept"] = "application/json"
