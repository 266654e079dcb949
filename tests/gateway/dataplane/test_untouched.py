"""What a gateway must not change: methods, targets, content, end-to-end fields (RFC 9110 7.7)."""

import re
from collections.abc import AsyncIterator
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.dataplane.rig import FakeTransport, Rig, code_of, get, ok, status_of
from tests.gateway.plain import route, table, target, version
from tests.gateway.wire.crooked import CUTS, cut
from tests.gateway.wire.depth import looks


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig(table(1, route(version(target(1, 1)))))
    yield made
    made.check()
    made.close()


def parts(message: bytes) -> tuple[bytes, list[bytes], bytes]:
    """Start line, field lines and body."""
    head, _, body = message.partition(b"\r\n\r\n")
    start, *fields = head.split(b"\r\n")
    return start, fields, body


async def passed(rig: Rig, request: bytes) -> bytes:
    """What an instance is sent for this request, which is answered."""
    client, instance = await rig.asked(request)
    out = instance.take()
    instance.feed(ok(b"" if request.startswith(b"HEAD") else b"fine"))
    assert status_of(client.take()) == 200
    client.end()
    return out


# --- methods and bodies ---

METHODS: Final = (
    b"GET",
    b"HEAD",
    b"DELETE",
    b"OPTIONS",
    b"PUT",
    b"PATCH",
    b"PROPFIND",
    b"get",
    b"!",
)
BODIES: Final = {
    # framing and body as a client sends them: the same as an instance gets them
    "none": (b"", b""),
    "empty": (b"content-length: 0\r\n", b""),
    "counted": (b"content-length: 28\r\n", b"GET /smuggled HTTP/1.1\r\n\r\n\r\n"),
    "chunked": (
        b"transfer-encoding: chunked\r\n",
        b"1c\r\nGET /smuggled HTTP/1.1\r\n\r\n\r\n\r\n0\r\n\r\n",
    ),
}


@pytest.mark.parametrize("framing", BODIES)
@pytest.mark.parametrize("method", METHODS)
async def test_framing_tells_whether_there_is_a_body_and_not_the_method(
    rig: Rig, method: bytes, framing: str
) -> None:
    """A proxy that drops the body of a DELETE, or says it is empty, and then sends it makes it the
    next request (RFC 9112 6)."""
    field, body = BODIES[framing]
    start, fields, content = parts(
        await passed(rig, method + b" /x HTTP/1.1\r\nhost: g\r\n" + field + b"\r\n" + body)
    )
    assert start == method + b" /x HTTP/1.1"
    assert content == body
    framed = [line + b"\r\n" for line in fields if re.match(rb"content-length|transfer-enc", line)]
    assert framed == ([field] if field else [])


async def test_connect_and_trace_are_refused_and_never_sent_on(rig: Rig) -> None:
    """One asks for a tunnel, the other shows credentials to whoever made the request (RFC 9110
    9.3.6, 9.3.8)."""
    for request in (
        b"CONNECT g:80 HTTP/1.1\r\nhost: g:80\r\n\r\n",
        b"TRACE / HTTP/1.1\r\nhost: g\r\ncookie: secret\r\n\r\n",
    ):
        client = rig.client()
        client.feed(request)
        assert status_of(client.out) == 405
        assert b"secret" not in client.out
    assert rig.loop.instances == []


# --- targets ---

PATH_BYTES: Final = bytes([*range(0x21, 0x7F), *range(0x80, 0x100)]).replace(b"#", b"")


@looks(2)
@given(st.lists(st.sampled_from(sorted(PATH_BYTES)), max_size=30).map(bytes))
async def test_a_target_arrives_as_it_was_sent(rest: bytes) -> None:
    """Decoded and quoted again it may name another resource, or end the line (RFC 3986 6.2.2)."""
    rig = Rig(table(1, route(version(target(1, 1)))))
    path = b"/x" + rest
    start, _, _ = parts(await passed(rig, get(path)))
    assert start == b"GET " + path + b" HTTP/1.1"
    rig.close()


LOOKALIKES: Final = (
    b"//v1/chat/completions",
    b"/v1//chat/completions",
    b"/v1/./chat/completions",
    b"/v1/x/../chat/completions",
    b"/v1/%63hat/completions",
    b"/v1/chat%2fcompletions",
    b"/V1/chat/completions",
    b"/v1/chat/completions/",
    b"/v1/models%2f",
    b"/v1/modelsx",
    b"/admin/v1/status",
    b"/metrics",
    b"/readyz",
    b"/%2e%2e/admin/v1/status",
    b"/v1/..%2fadmin",
    b"/v2/models",
)


@pytest.mark.parametrize("path", LOOKALIKES)
async def test_a_path_that_only_looks_like_one_of_ours_is_not_ours(rig: Rig, path: bytes) -> None:
    """Two canonical forms of one path are two answers to the question what it is: paths are
    compared as received. Nothing of the admin API is on this port."""
    body = b"not json, and nobody asks"
    request = b"POST %s HTTP/1.1\r\nhost: g\r\ncontent-length: %d\r\n\r\n" % (path, len(body))
    start, _, content = parts(await passed(rig, request + body))
    assert start == b"POST " + path + b" HTTP/1.1"
    assert content == body
    assert rig.outcomes() == {"served": 1}


@pytest.mark.parametrize(
    ("target_", "path", "host"),
    [
        (b"http://b/p?q=%20", b"/p?q=%20", b"b"),
        (b"http://b:81", b"/", b"b:81"),
        (b"HTTPS://b?q", b"/?q", b"b"),
        (b"http://[::1]:81/..%2f", b"/..%2f", b"[::1]:81"),
    ],
)
async def test_the_authority_of_an_absolute_target_is_the_host(
    rig: Rig, target_: bytes, path: bytes, host: bytes
) -> None:
    """RFC 9112 3.2.2: a proxy that gets one ignores the Host field, and sends the origin form."""
    start, fields, _ = parts(await passed(rig, get(target_, b"x: 1")))
    assert start == b"GET " + path + b" HTTP/1.1"
    assert [line for line in fields if line.lower().startswith(b"host:")] == [b"host: " + host]
    assert b"x-forwarded-host: " + host in fields


# --- offers to switch protocols ---

OFFERS: Final = (
    b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n",
    b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: x\r\n",
    b"upgrade: TLS/1.0\r\n",
)


@pytest.mark.parametrize("offer", OFFERS, ids=["h2c", "websocket", "tls"])
@pytest.mark.parametrize("framing", BODIES)
async def test_an_offer_to_switch_is_ignored_and_the_body_is_a_body(
    rig: Rig, framing: str, offer: bytes
) -> None:
    """Every Java client offers h2c with its first request (RFC 9110 7.8): the request is served as
    it is, the offer ends here, and the connection serves on."""
    field, body = BODIES[framing]
    head = b"POST /x HTTP/1.1\r\nhost: g\r\n" + offer + field + b"\r\n"
    client, instance = await rig.asked(head + body)
    _, fields, content = parts(instance.take())
    assert content == body
    assert [line for line in fields if re.match(rb"(?i)connection|upgrade|http2", line)] == []
    instance.feed(ok())
    assert status_of(client.take()) == 200
    client.feed(get(b"/next"))
    assert instance.take().startswith(b"GET /next ")
    instance.feed(ok())
    assert client.out.endswith(b"fine")


# --- fields and content ---

NAME: Final = st.from_regex(rb"x-[a-z0-9!#$%&'*+.^`|~-]{1,8}", fullmatch=True).filter(
    lambda name: (
        name not in {b"x-model", b"x-real-ip", b"x-request-id", b"x-instance-id", b"x-session-id"}
    )
)
VALUE: Final = st.binary(max_size=12).map(
    lambda raw: bytes(c for c in raw if c >= 0x20 and c != 0x7F).strip(b" \t")
)
FIELDS: Final = st.lists(st.tuples(NAME, VALUE).map(b": ".join), max_size=5)


def tell(transport: FakeTransport, message: bytes, cuts: list[int]) -> None:
    for piece in cut(message, cuts):
        transport.feed(piece)


@looks(1)
@given(FIELDS, FIELDS, CUTS)
async def test_fields_of_both_sides_arrive_byte_for_byte_in_their_order(
    asked: list[bytes], answered: list[bytes], cuts: list[int]
) -> None:
    """Latin-1, raw UTF-8, repetitions and empty values too (RFC 9110 5.3, 5.5)."""
    rig = Rig(table(1, route(version(target(1, 1)))))
    client = rig.client()
    tell(client, get(b"/x", *asked), cuts)
    await rig.dialled()
    instance = rig.busy(client)
    _, got, _ = parts(instance.take())
    ours = (b"x-forwarded-", b"x-request-id: ")
    assert [line for line in got if line[:2] == b"x-" and not line.startswith(ours)] == asked
    tell(instance, ok(b"fine", *answered), cuts)
    _, got, _ = parts(client.out)
    back = (b"x-model-version: ", b"x-instance-id: ", b"x-request-id: ")
    assert [line for line in got if line[:2] == b"x-" and not line.startswith(back)] == answered
    rig.close()


async def test_content_is_not_decoded_and_buffering_hints_pass(rig: Rig) -> None:
    """A gateway does not transform (RFC 9110 7.7), and a proxy in front reads X-Accel-Buffering."""
    packed = b"\x1f\x8b\x08\x00not really"
    request = (
        b"POST /x HTTP/1.1\r\nhost: g\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n%s"
    )
    client, instance = await rig.asked(request % (len(packed), packed))
    _, fields, content = parts(instance.take())
    assert b"content-encoding: gzip" in fields
    assert content == packed
    assert [line for line in fields if line.lower().startswith((b"accept", b"user-agent"))] == []
    instance.feed(ok(packed, b"Content-Encoding: gzip", b"X-Accel-Buffering: no", b"Vary: *"))
    _, fields, content = parts(client.take())
    assert {b"Content-Encoding: gzip", b"X-Accel-Buffering: no", b"Vary: *"} <= set(fields)
    assert content == packed


async def test_one_forwarded_for_ends_with_whom_we_saw(rig: Rig) -> None:
    """What stands before it is hearsay (RFC 7239 8.1); two fields would be read apart."""
    spoofed = (b"X-Forwarded-For: 127.0.0.1", b"x-forwarded-for: 8.8.8.8, 10.0.0.1")
    lies = (b"X-Real-IP: 127.0.0.1", b"Forwarded: for=127.0.0.1", b"X-Forwarded-Proto: https")
    look = (b"X_Forwarded_For: 127.0.0.1", b"X-Forwarded_For: 127.0.0.1", b"X_Real_IP: 127.0.0.1")
    _, fields, _ = parts(await passed(rig, get(b"/x", *spoofed, *lies, *look)))
    told = [line for line in fields if re.match(rb"(?i)x[-_](forwarded|real)|forwarded", line)]
    assert sorted(told) == [
        b"x-forwarded-for: 127.0.0.1, 8.8.8.8, 10.0.0.1, 10.0.0.9",
        b"x-forwarded-host: g",
        b"x-forwarded-proto: http",
    ]


async def test_fields_of_one_hop_end_here_in_both_directions(rig: Rig) -> None:
    """RFC 9110 7.6.1; the list cannot take away what frames or routes, nor what we add."""
    named = b"Connection: close, X-Hop, content-length, host, via, x-forwarded-for, x-request-id"
    hop = (named, b"X-Hop: 1", b"x-hop: 2", b"Keep-Alive: timeout=5", b"TE: trailers", b"X-Stay: 1")
    client, instance = await rig.asked(
        b"POST /x HTTP/1.1\r\nhost: g\r\ncontent-length: 2\r\n" + b"\r\n".join(hop) + b"\r\n\r\nhi"
    )
    _, fields, content = parts(instance.take())
    assert content == b"hi"
    got = {line.partition(b":")[0].lower() for line in fields}
    assert got.isdisjoint({b"connection", b"x-hop", b"keep-alive", b"te"})
    assert {b"host", b"content-length", b"via", b"x-forwarded-for", b"x-request-id"} <= got
    assert b"x-stay" in got
    back = (b"Connection: X-Hop, x-request-id, content-length", b"X-Hop: 1", b"Keep-Alive: x")
    instance.feed(ok(b"fine", *back, b"Proxy-Authenticate: x", b"X-Stay: 1"))
    _, fields, content = parts(client.take())
    assert content == b"fine"
    got = {line.partition(b":")[0].lower() for line in fields}
    assert got.isdisjoint({b"x-hop", b"keep-alive", b"proxy-authenticate"})
    assert {b"content-length", b"x-request-id", b"x-stay"} <= got
    assert code_of(client.out) == ""
