"""One call to the admin API: JSON out, JSON in, or one exception with a sentence.

Floor 3, I/O.
Synchronous, from the standard library: a verb of the CLI is a call or two, and must start fast.
"""

import http.client
import os
import pwd
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

import orjson

from admin import views
from admin.openapi import PREFIX, SAYS
from admin.views import Document
from gateway.control import Problem

TIMEOUT_S: Final = 60.0  # four keep-alive comments of an event stream; a wait=1 is seconds


class Unanswered(Exception):
    """The gateway refused, or there was none. `code` is the API's, or `no_gateway`."""

    def __init__(self, code: str, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class How:
    """How a change is to be made; the default is: now, without waiting for the workers."""

    wait: bool = False
    dry_run: bool = False
    revision: int | None = None


NOW: Final = How()


class _OverUnixSocket(http.client.HTTPConnection):
    """HTTP to a path in the file system; the Host that it names is never looked up."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Calls:
    """JSON in and out of one address; one connection a call, so none can have gone stale."""

    def __init__(self, address: str, timeout_s: float = TIMEOUT_S) -> None:
        self._address = address
        self._timeout_s = timeout_s

    def call(
        self, method: str, path: str, body: Document | None = None, how: How = NOW
    ) -> Document:
        """The document that the gateway answers.

        Raises: Unanswered.
        """
        query = {"wait": how.wait, "dry_run": how.dry_run}
        chosen = urlencode({key: "1" for key, on in query.items() if on})
        fields = {} if how.revision is None else {"If-Match": f'"{how.revision}"'}
        more = "&" if "?" in path else "?"
        target = PREFIX + path + (f"{more}{chosen}" if chosen else "")
        answer = self._send(method, target, body, fields)
        with answer:
            return self._document(answer)

    @contextmanager
    def opened(self, method: str, target: str) -> Iterator[http.client.HTTPResponse]:
        """An answer without an end, to be read as it comes.

        Raises: Unanswered when the gateway refused it.
        """
        with self._send(method, target, None, {}) as answer:
            if answer.status >= 400:
                self._document(answer)
            yield answer

    def _send(
        self, method: str, target: str, body: Document | None, fields: dict[str, str]
    ) -> http.client.HTTPResponse:
        """The answer's head; its body has not been read.

        Raises: Unanswered when nobody answers.
        """
        connection = self._connection()
        raw = None if body is None else orjson.dumps(body)
        types = {} if raw is None else {"Content-Type": "application/json"}
        try:
            given = {**types, **fields, SAYS: _user(), "Connection": "close"}
            connection.request(method, target, raw, given)
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as exc:
            connection.close()
            raise self._gone(exc) from None

    def _connection(self) -> http.client.HTTPConnection:
        if self._address.startswith("unix:"):
            path = self._address.removeprefix("unix:")
            return _OverUnixSocket(path, self._timeout_s)
        host, _, port = self._address.rpartition(":")
        return http.client.HTTPConnection(host.strip("[]"), int(port), self._timeout_s)

    def _gone(self, exc: Exception) -> Unanswered:
        if isinstance(exc, TimeoutError):
            message = f"the gateway at {self._address} has not answered for {self._timeout_s:g} s"
        elif isinstance(exc, ConnectionRefusedError | FileNotFoundError):
            message = (
                f"no gateway answers at {self._address}: is `sluicegate serve` running? "
                "(--admin HOST:PORT)"
            )
        else:
            message = f"no gateway answers at {self._address}: {exc}"
        return Unanswered("no_gateway", message)

    def _document(self, answer: http.client.HTTPResponse) -> Document:
        """The JSON object in the answer.

        Raises: Unanswered with the gateway's own sentence when it refused.
        """
        try:
            document = orjson.loads(answer.read())
        except orjson.JSONDecodeError:
            document = None
        except (OSError, http.client.HTTPException) as exc:
            raise self._gone(exc) from None
        if not isinstance(document, dict) or (answer.status >= 400 and "error" not in document):
            said = f"{answer.status} {answer.reason}"
            raise Unanswered(
                "not_ours", f"{self._address} answers {said}, not as an admin port does"
            )
        if answer.status >= 400:
            error = document["error"]
            problems = [views.read(Problem, one) for one in error.get("problems", ())]
            raise Unanswered(error["code"], error["message"], problems)
        return document


def _user() -> str:
    """Whom the history names; a number when the system has no name for him."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = f"uid {os.getuid()}"
    return name.encode("ascii", "replace").decode()
