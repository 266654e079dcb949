"""Heads as they leave us."""

import orjson

from gateway.errors import GatewayError
from gateway.wire.compose import (
    date_line,
    id_lines,
    own_answer,
    refusal,
    request_head,
    response_head,
    ways,
)
from gateway.wire.heads import RequestLine
from tests.gateway.wire.test_heads import read, read_response

GET = RequestLine(b"GET / HTTP/1.1")


def test_an_instance_is_told_who_asked_and_by_which_way() -> None:
    head = read(
        b"GET /p HTTP/1.0\r\nHost: g\r\nX-A: 1\r\nX-Forwarded-For: 9.9.9.9\r\n"
        b"X-Forwarded-Host: lie\r\nForwarded: for=lie\r\nConnection: keep-alive"
    )
    way = ways(head, b"1.2.3.4:80", b"5.6.7.8")
    assert b"\r\n".join(request_head(head, b"", way, b"x-request-id: r")).split(b"\r\n") == [
        b"GET /p HTTP/1.1",
        b"host: g",
        b"x-forwarded-for: 9.9.9.9, 5.6.7.8",
        b"x-forwarded-proto: http",
        b"via: 1.0 sluicegate",
        b"x-forwarded-host: g",
        b"X-A: 1",
        b"x-request-id: r",
        b"",
        b"",
    ]


def test_a_client_without_host_gets_the_address_of_the_instance() -> None:
    lines = ways(read(b"GET / HTTP/1.0"), b"1.2.3.4:80", b"p")
    assert lines.startswith(b"host: 1.2.3.4:80\r\n")
    assert b"x-forwarded-host" not in lines


def test_a_request_has_exactly_the_framing_of_its_body() -> None:
    for head, framing in {
        b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: Chunked": b"transfer-encoding: chunked",
        b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0": b"content-length: 0",
        b"GET / HTTP/1.1\r\nhost: a": b"",
    }.items():
        request = read(head)
        assert request.framing == framing
        lines = request_head(request, request.framing, b"host: a", b"x-request-id: r")
        assert [line for line in lines if b"length" in line or b"coding" in line] == (
            [framing] if framing else []
        )


def test_a_response_gets_a_date_only_when_it_has_none() -> None:
    without = read_response(b"HTTP/1.1 200 OK\r\nServer: s")
    assert b"\r\n".join(response_head(without, b"", b"x-instance-id: i", b"date: now")) == (
        b"HTTP/1.1 200 OK\r\nServer: s\r\ndate: now\r\nx-instance-id: i\r\n\r\n"
    )
    dated = read_response(b"HTTP/1.1 200 OK\r\nDate: then")
    assert b"date: now" not in response_head(dated, b"", b"i: i", b"date: now")


def test_a_refusal_says_who_speaks_and_when_to_come_back() -> None:
    error = GatewayError("saturated", "no room", 3, model="m")
    head, _, body = refusal(error, b"r", b"date: d", b"", GET).partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 429 Too Many Requests"
    assert b"x-sluicegate-error: saturated" in lines
    assert b"proxy-status: sluicegate; error=connection_limit_reached" in lines
    assert b"retry-after: 3" in lines
    assert b"server: sluicegate" in lines
    assert b"content-length: %d" % len(body) in lines
    told = orjson.loads(body)["error"]
    assert (told["code"], told["request_id"], told["model"]) == ("saturated", "r", "m")


def test_a_refusal_on_a_path_of_kserve_says_its_error_as_a_text() -> None:
    error = GatewayError("no_ready_instance", "nothing is ready", 3, model="m")
    start = RequestLine(b"POST /v2/models/m/infer HTTP/1.1")
    answer = refusal(error, b"r", b"date: d", b"", start)
    assert orjson.loads(answer.partition(b"\r\n\r\n")[2]) == {
        "error": "nothing is ready",
        "type": error.refusal.kind,
        "param": None,
        "code": "no_ready_instance",
        "request_id": "r",
        "model": "m",
        "retry_after_s": 3,
    }


def test_an_answer_to_head_has_the_length_but_no_body() -> None:
    error = GatewayError("unknown_model", "no model named m")
    for answer in (
        refusal(error, b"r", b"date: d", b"", RequestLine(b"HEAD / HTTP/1.1")),
        own_answer(b"{}", b"r", b"date: d", b"", True),
    ):
        assert answer.endswith(b"\r\n\r\n")
        assert b"content-length: " in answer


def test_a_method_refusal_names_the_methods() -> None:
    assert b"\r\nallow: GET" in refusal(
        GatewayError("method_refused", "no"), b"r", b"date: d", b"connection: close", GET
    )


def test_a_started_trace_is_valid_trace_context() -> None:
    request_id, trace = id_lines(b"r", b"%016x" % 7, b"%016x" % 9).split(b"\r\n")
    assert request_id == b"x-request-id: r"
    assert trace == b"traceparent: 00-" + b"%016x%016x-%016x-01" % (7, 9, 9)


def test_the_date_is_an_imf_fixdate() -> None:
    assert date_line(784_111_777) == b"date: Sun, 06 Nov 1994 08:49:37 GMT"
