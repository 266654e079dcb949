"""Every way in which the admin API says no: one table, one shape of answer.

Floor 0, pure.
`{"error": {"code", "message", "problems"}}`, problems only where there are several parts. A client
that shows the message shows a sentence.
"""

from collections.abc import Sequence
from typing import Any, Final

from admin.views import problems as spelled
from gateway.control import Denied, Problem

# code: HTTP status. The first fourteen are those of gateway.control.Denied.
STATUS: Final = {
    "unknown_instance": 404,
    "unknown_model": 404,
    "unknown_lease": 404,
    "unknown_rollout": 404,
    "unknown_version": 404,
    "invalid": 422,
    "last_routable": 409,
    "conflict": 409,
    "from_file": 409,
    "revision_moved": 412,
    "closing": 503,
    "handing_over": 503,
    "store_failed": 503,
    "not_served": 504,
    "unknown_drain": 404,
    "unknown_path": 404,
    "method_refused": 405,
    "not_json": 400,
    "not_json_type": 415,
    "body_too_large": 413,
    "slow_body": 408,
    "foreign_site": 403,
    "foreign_host": 403,
    "streams_full": 503,
}


class Refused(Exception):
    """A request that is not carried out; nothing has changed."""

    def __init__(self, code: str, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.problems = tuple(problems)
        self.status = STATUS.get(code, 409)  # a refusal that control learns later is still one


def of_denied(denied: Denied) -> Refused:
    """The answer to what the control process refused."""
    return Refused(denied.code, denied.message, denied.problems)


def invalid(problems: Sequence[Problem]) -> Refused:
    """The answer to a body, query or field with these problems."""
    return Refused("invalid", "; ".join(str(problem) for problem in problems), problems)


def document(refused: Refused) -> dict[str, Any]:
    error: dict[str, Any] = {"code": refused.code, "message": refused.message}
    if refused.problems:
        error["problems"] = spelled(refused.problems)
    return {"error": error}
