-- A small request up, 8 MiB down.
wrk.method = "POST"
wrk.body = '{"model":"m","stream":false,"answer_bytes":8388608,"prompt":"hi"}'
wrk.headers["Content-Type"] = "application/json"
