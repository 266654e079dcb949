"""Rollouts over the admin API, typed.

Floor 3, I/O.
As in `client`: views come back as the records that the gateway made them of, and every method
raises Unanswered, and nothing else, when the gateway refuses or is not there.
"""

from dataclasses import asdict
from typing import Any
from urllib.parse import quote

from admin import views
from admin.calls import NOW, Calls, How
from gateway.control import Receipt, RolloutView, StartRollout


class Rollouts:
    """What can be read of rollouts, and what can be asked of them."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def every(self) -> tuple[RolloutView, ...]:
        """Of all models, newest first."""
        return self._read("/rollouts")

    def of(self, model: str) -> tuple[RolloutView, ...]:
        """Newest first: when one runs, it is the first."""
        return self._read(f"{_path(model)}s")

    def latest(self, model: str) -> RolloutView:
        return views.read(RolloutView, self._calls.call("GET", _path(model)))

    def start(self, ask: StartRollout, how: How = NOW) -> Receipt:
        body = {key: value for key, value in asdict(ask).items() if key != "model"}
        return self._make(ask.model, "", body, how)

    def promote(
        self, model: str, full: bool = False, how: How = NOW, step: int | None = None
    ) -> Receipt:
        return self._make(model, "/promote", {"full": full, "step": step}, how)

    def pause(self, model: str, how: How = NOW) -> Receipt:
        return self._make(model, "/pause", None, how)

    def resume(self, model: str, how: How = NOW) -> Receipt:
        return self._make(model, "/resume", None, how)

    def abort(self, model: str, reason: str = "", how: How = NOW) -> Receipt:
        return self._make(model, "/abort", {"reason": reason}, how)

    def retry(self, model: str, force: bool = False, how: How = NOW) -> Receipt:
        return self._make(model, "/retry", {"force": force}, how)

    def _read(self, path: str) -> tuple[RolloutView, ...]:
        found = self._calls.call("GET", path)["rollouts"]
        return tuple(views.read(RolloutView, one) for one in found)

    def _make(self, model: str, verb: str, body: dict[str, Any] | None, how: How) -> Receipt:
        return views.read(Receipt, self._calls.call("POST", _path(model) + verb, body, how))


def _path(model: str) -> str:
    return f"/models/{quote(model, safe='')}/rollout"
