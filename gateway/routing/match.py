"""From a request to the model it asks for.

Floor 1, pure.   Flow: parse -> [match] -> pick
The path decides who names the model: `x-model` before all, then a KServe path, then the JSON body
of the OpenAI paths; anything else is for the default model. Paths are compared as received: what
does not look exactly like one of ours is not ours, and is passed on untouched.
"""

import re
from typing import Final
from urllib.parse import unquote_to_bytes

from gateway.errors import GatewayError
from gateway.routing.compiled import CompiledRoute, CompiledTable
from gateway.wire.heads import RequestHead, RequestLine

# The generation requests; their bodies are held to read `model`.
OPENAI_PATHS: Final = frozenset({b"/v1/chat/completions", b"/v1/completions", b"/v1/embeddings"})
MODELS_PATH: Final = b"/v1/models"
KSERVE: Final = re.compile(rb"/v2/models/([^/]+)(?:/versions/([^/]+))?(?:/.*)?")

# How the model is to be found.
BY_DEFAULT: Final = 0
BY_BODY: Final = 1
BY_NAME: Final = 2
LISTING: Final = 3  # answered from the table


def locate(head: RequestHead) -> int:
    """Who names the model. Cost: nothing but a look for a request line seen before.

    Raises: GatewayError for methods that are not relayed.
    """
    start = head.start
    if start.place < 0:
        start.place = _placed(start)
    return BY_NAME if head.model else start.place


def _placed(start: RequestLine) -> int:
    """As `locate`, of requests without x-model."""
    check_method(start.method)
    path = start.path
    if path in OPENAI_PATHS and start.method == b"POST":
        return BY_BODY
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
    return name.decode("utf-8", "replace") if name else ""


def check_method(method: bytes) -> None:
    """Raises: GatewayError for methods that a gateway must not relay (RFC 9110 9.3.6, 9.3.8)."""
    if method == b"CONNECT" or method == b"TRACE":
        raise GatewayError("method_refused", f"{method.decode()} is not relayed")
