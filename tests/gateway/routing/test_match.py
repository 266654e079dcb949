"""From request to model."""

import orjson
import pytest

from gateway.errors import GatewayError
from gateway.routing.compiled import CompiledTable, models_answer
from gateway.routing.match import (
    BY_BODY,
    BY_DEFAULT,
    BY_NAME,
    LISTING,
    check_method,
    generates,
    listed,
    locate,
    routed,
)
from tests.gateway.plain import route, table, target, version
from tests.gateway.wire.test_heads import read

PATHS = [
    (b"POST /v1/chat/completions", b"", BY_BODY, "", ""),
    (b"POST /v1/completions?x=1", b"", BY_BODY, "", ""),
    (b"POST /v1/embeddings", b"", BY_BODY, "", ""),
    (b"GET /v1/chat/completions", b"", BY_DEFAULT, "", ""),
    (b"POST /v1/chat/completions/", b"", BY_DEFAULT, "", ""),
    (b"POST //v1/chat/completions", b"", BY_DEFAULT, "", ""),
    (b"POST /v1/chat/completions", b"X-Model: a\r\nX-Model-Version: 2", BY_NAME, "a", "2"),
    (b"POST /v2/models/a%2Fb/versions/3/infer", b"", BY_NAME, "a/b", "3"),
    (b"POST /v2/models/a/infer", b"X-Model: z", BY_NAME, "z", ""),
    (b"GET /v2/models/a/ready", b"", BY_NAME, "a", ""),
    (b"GET /v2/models/a", b"", BY_NAME, "a", ""),
    (b"GET /v2/health/ready", b"", BY_DEFAULT, "", ""),
    (b"GET /v1/models", b"", LISTING, "", ""),
    (b"HEAD /v1/models/a", b"", LISTING, "a", ""),
    (b"GET /v1/models/", b"", BY_DEFAULT, "", ""),
    (b"GET /v1/modelsx", b"", BY_DEFAULT, "", ""),
    (b"POST /v1/models", b"", BY_DEFAULT, "", ""),
    (b"GET /anything", b"", BY_DEFAULT, "", ""),
]


@pytest.mark.parametrize(("start", "fields", "where", "model", "pin"), PATHS)
def test_a_request_is_located(
    start: bytes, fields: bytes, where: int, model: str, pin: str
) -> None:
    head = read(b"\r\n".join(filter(None, [start + b" HTTP/1.1", b"host: g", fields])))
    assert locate(head) == where
    if where == LISTING:
        assert listed(head) == model
    if where == BY_NAME:
        built = CompiledTable(table(1, route(version(target(1, 1)), model=model)), None, 1)
        found, version_named = routed(head, built, where)
        assert (found.model, version_named) == (model, pin)


def test_only_generation_requests_need_content() -> None:
    assert generates(read(b"POST /v1/completions HTTP/1.1\r\nhost: g"))
    assert not generates(read(b"GET /v1/completions HTTP/1.1\r\nhost: g"))


@pytest.mark.parametrize("method", [b"CONNECT", b"TRACE"])
def test_what_must_not_be_relayed_is_refused(method: bytes) -> None:
    with pytest.raises(GatewayError) as caught:
        check_method(method)
    assert caught.value.refusal.status == 405


def test_an_unknown_model_and_a_missing_default_are_unknown() -> None:
    built = CompiledTable(table(1, route(version(target(1, 1))), default=""), None, 1)
    for head in (b"GET / HTTP/1.1\r\nhost: g", b"GET / HTTP/1.1\r\nhost: g\r\nx-model: no"):
        request = read(head)
        with pytest.raises(GatewayError) as caught:
            routed(request, built, locate(request))
        assert caught.value.refusal.code == "unknown_model"


def test_models_are_listed_with_versions_and_ready_counts() -> None:
    built = CompiledTable(table(1, route(version(target(1, 1), target(2, 1)))), None, 1)
    answer = models_answer(built, "")
    assert answer is not None
    (model,) = orjson.loads(answer)["data"]
    assert model["created"] == 1_700_000_000
    assert (model["id"], model["versions"]) == ("m", {"1": {"weight": 100.0, "ready": 2}})
    assert models_answer(built, "no") is None
