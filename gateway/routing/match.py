"""From a request to the model it asks for.

Floor 1, pure.   Flow: parse -> [match] -> pick
The path decides who names the model: `x-model` before all, then a KServe path, then the JSON body
of the OpenAI paths; anything else is for the default model. Paths are compared as received: what
does not look exactly like one of ours is not ours, and is passed on untouched.
"""

import re
from typing import Final
from urllib.parse import unquote_to_bytes

import orjson

from gateway.errors import GatewayError
from gateway.routing.compiled import CompiledRoute, CompiledTable
from gateway.wire.heads import RequestHead

# The generation requests; their bodies are held to read `model`.
OPENAI_PATHS: Final = frozenset({b"/v1/chat/completions", b"/v1/completions", b"/v1/embeddings"})
MODELS_PATH: Final = b"/v1/models"
KSERVE: Final = re.compile(rb"/v2/models/([^/]+)(?:/versions/([^/]+))?(?:/.*)?")
PREFIX_CHARS: Final = 512  # of a prompt, for affinity: a system prompt's beginning tells them apart

# How the model is to be found.
BY_DEFAULT: Final = 0
BY_BODY: Final = 1
BY_NAME: Final = 2
LISTING: Final = 3  # answered from the table


def locate(head: RequestHead) -> int:
    """Who names the model. Cost: one set lookup for OpenAI paths."""
    start = head.start
    path = start.path
    if path in OPENAI_PATHS and start.method == b"POST":
        return BY_NAME if head.model else BY_BODY
    if head.model:
        return BY_NAME
    if path[:4] == b"/v2/" and KSERVE.fullmatch(path):
        return BY_NAME
    if path[:10] == MODELS_PATH and start.method in (b"GET", b"HEAD"):
        return LISTING if path[10:] == b"" or path[10:11] == b"/" != path[10:] else BY_DEFAULT
    return BY_DEFAULT


def generates(head: RequestHead) -> bool:
    """Whether a 2xx without content would be no answer."""
    return head.start.path in OPENAI_PATHS and head.start.method == b"POST"


def named(head: RequestHead) -> tuple[str, str]:
    """Model and version ("" for any) that head and path name; x-headers before the path."""
    model, version = text(head.model), text(head.version)
    if head.start.path[:4] == b"/v2/":
        match = KSERVE.fullmatch(head.start.path)
        if match is not None:
            model = model or text(unquote_to_bytes(match[1]))
            version = version or text(unquote_to_bytes(match[2] or b""))
    return model, version


def routed(head: RequestHead, table: CompiledTable, where: int) -> tuple[CompiledRoute, str]:
    """The route, and the version that is insisted on, of a request whose body names nothing.

    Raises: GatewayError.
    """
    if where == BY_NAME:
        model, version = named(head)
        return route_named(table, model), version
    return route_named(table, ""), text(head.version)


def route_named(table: CompiledTable, model: str) -> CompiledRoute:
    """Raises: GatewayError."""
    route = table.routes.get(model) if model else table.default
    if route is None:
        if not model:
            raise GatewayError("unknown_model", "no model is named, and there is no default one")
        raise GatewayError("unknown_model", f"no model named {model}", model=model)
    return route


def listed(head: RequestHead) -> str:
    """The id in `GET /v1/models/{id}`, "" for the whole list. Ids may contain slashes."""
    return text(unquote_to_bytes(head.start.path[len(MODELS_PATH) + 1 :]))


def text(name: bytes) -> str:
    """A name from the wire; what is no UTF-8 stays a name that nothing has."""
    return name.decode("utf-8", "replace")


def check_method(method: bytes) -> None:
    """Raises: GatewayError for methods that a gateway must not relay (RFC 9110 9.3.6, 9.3.8)."""
    if method == b"CONNECT" or method == b"TRACE":
        raise GatewayError("method_refused", f"{method.decode()} is not relayed")


def read_model(body: bytes) -> str:
    """The `model` of a JSON body, "" when there is none; the last of several counts.

    Raises: GatewayError.
    """
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        raise GatewayError("bad_request", f"the body is not JSON: {exc}") from None
    if not isinstance(document, dict):
        raise GatewayError("bad_request", "the body is not a JSON object")
    model = document.get("model", "")
    if not isinstance(model, str):
        raise GatewayError("bad_request", "`model` is not a string")
    return model


def prompt_prefix(body: bytes) -> bytes:
    """The beginning of a prompt, b"" where none is found: requests that share it share a cache."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return b""
    if not isinstance(document, dict):
        return b""
    prompt = document.get("prompt") or document.get("messages") or document.get("input")
    if not prompt:
        return b""
    first = prompt[0] if isinstance(prompt, list) else prompt
    return orjson.dumps(first)[:PREFIX_CHARS]
