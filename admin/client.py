"""The admin API from the other side, typed: what the CLI and the tests speak.

Floor 3, I/O.
Views come back as the records that the gateway made them of. Every method raises Unanswered, and
nothing else, when the gateway refuses or is not there.
"""

import http.client
from collections.abc import Generator, Iterator
from typing import Any
from urllib.parse import quote, urlencode

import orjson

from admin import views
from admin.calls import NOW, TIMEOUT_S, Calls, How, Unanswered
from admin.openapi import PREFIX
from admin.rollouts.calls import Rollouts
from admin.views import Document
from gateway.control import (
    ChangeView,
    DrainView,
    Event,
    InstanceView,
    LeaseView,
    ModelView,
    Problem,
    Receipt,
    StatusView,
)


class Client:
    """A gateway's admin port: what can be read of it, and what can be changed."""

    def __init__(self, address: str, timeout_s: float = TIMEOUT_S) -> None:
        self.calls = Calls(address, timeout_s)
        self.read = Reads(self.calls)
        self.change = Changes(self.calls)
        self.rollouts = Rollouts(self.calls)


class Reads:
    """What can be read; nothing here changes anything."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def status(self) -> StatusView:
        return views.read(StatusView, self._calls.call("GET", "/status"))

    def instances(self) -> tuple[InstanceView, ...]:
        found = self._calls.call("GET", "/instances")["instances"]
        return tuple(views.read(InstanceView, one) for one in found)

    def instance(self, name: str) -> InstanceView:
        return views.read(InstanceView, self._calls.call("GET", f"/instances/{_part(name)}"))

    def models(self) -> tuple[ModelView, ...]:
        found = self._calls.call("GET", "/models")["models"]
        return tuple(views.read(ModelView, one) for one in found)

    def drains(self) -> tuple[DrainView, ...]:
        found = self._calls.call("GET", "/drains")["drains"]
        return tuple(views.read(DrainView, one) for one in found)

    def drain(self, instance: str) -> DrainView:
        return views.read(DrainView, self._calls.call("GET", f"/drains/{_part(instance)}"))

    def leases(self, instance: str | None, model: str | None) -> tuple[LeaseView, ...]:
        given = {"instance": instance, "model": model}
        query = urlencode({key: value for key, value in given.items() if value is not None})
        found = self._calls.call("GET", f"/leases?{query}" if query else "/leases")["leases"]
        return tuple(views.read(LeaseView, one) for one in found)

    def history(self) -> tuple[ChangeView, ...]:
        found = self._calls.call("GET", "/history")["history"]
        return tuple(views.read(ChangeView, one) for one in found)

    def config(self) -> dict[str, dict[str, Any]]:
        """Dotted key: {"value", "origin"}."""
        config: dict[str, dict[str, Any]] = self._calls.call("GET", "/config")["config"]
        return config

    def check(self, text: str) -> tuple[Problem, ...]:
        """What is wrong with a candidate config.toml."""
        answer = self._calls.call("POST", "/config/check", {"text": text})
        return tuple(views.read(Problem, one) for one in answer["problems"])

    def events(self, after: int | None, follow: bool) -> Generator[Event, None, None]:
        """Events as they come; the end of the iterator is the end of the stream.

        Raises: Unanswered also in the middle, when the gateway goes away.
        """
        query = {"follow": "1" if follow else "0"} | ({} if after is None else {"after": after})
        target = f"{PREFIX}/events?{urlencode(query)}"
        with self._calls.opened("GET", target) as answer:
            yield from _events(answer)


class Changes:
    """What can be changed; each returns once the gateway has done it, or raises Unanswered."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def set_weights(
        self, model: str, weights: dict[str, float], how: How = NOW, *, override: bool = False
    ) -> Receipt:
        path = f"/models/{_part(model)}/weights" + ("?override=1" if override else "")
        return self._make("PUT", path, weights, how)

    def reset_weights(self, model: str, how: How = NOW) -> Receipt:
        return self._make("DELETE", f"/models/{_part(model)}/weights", None, how)

    def set_instance_weight(self, instance: str, weight: float, how: How = NOW) -> Receipt:
        return self._make("PUT", f"/instances/{_part(instance)}/weight", {"weight": weight}, how)

    def reset_instance_weight(self, instance: str, how: How = NOW) -> Receipt:
        return self._make("DELETE", f"/instances/{_part(instance)}/weight", None, how)

    def drain(
        self,
        instance: str,
        grace_s: float | None = None,
        *,
        stop: bool = False,
        force: bool = False,
        how: How = NOW,
    ) -> Receipt:
        body = {"grace_s": grace_s, "stop": stop, "force": force}
        return self._make("PUT", f"/instances/{_part(instance)}/drain", body, how)

    def undrain(self, instance: str, how: How = NOW) -> Receipt:
        return self._make("DELETE", f"/instances/{_part(instance)}/drain", None, how)

    def stop(
        self, instance: str, grace_s: float | None = None, *, force: bool = False, how: How = NOW
    ) -> Receipt:
        body = {"grace_s": grace_s, "force": force}
        return self._make("POST", f"/instances/{_part(instance)}/stop", body, how)

    def start(self, instance: str, how: How = NOW) -> Receipt:
        return self._make("POST", f"/instances/{_part(instance)}/start", None, how)

    def add(self, instance: Document, how: How = NOW) -> Receipt:
        """`instance`: id, model, version, http, grpc."""
        return self._make("POST", "/instances", instance, how)

    def remove(self, instance: str, how: How = NOW) -> Receipt:
        return self._make("DELETE", f"/instances/{_part(instance)}", None, how)

    def cancel(self, request_id: str, how: How = NOW) -> Receipt:
        return self._make("DELETE", f"/leases/{_part(request_id)}", None, how)

    def reload(self, how: How = NOW) -> Receipt:
        return self._make("POST", "/config/reload", None, how)

    def _make(self, method: str, path: str, body: Document | None, how: How) -> Receipt:
        return views.read(Receipt, self._calls.call(method, path, body, how))


def _part(name: str) -> str:
    """A name as one segment of a path, whatever is in it."""
    return quote(name, safe="")


def _events(answer: http.client.HTTPResponse) -> Iterator[Event]:
    """The events of a stream; one is one `data` line, since the gateway writes them so."""
    try:
        for line in answer:
            if line.startswith(b"data: "):
                yield views.read(Event, orjson.loads(line[6:]))
    except (OSError, http.client.HTTPException) as exc:
        raise Unanswered("no_gateway", f"the gateway ended the stream of events: {exc}") from None
