"""What one gateway gives to the next: an offer, with the descriptors it names.

Floor 3, I/O.   Flow: supervisor -> [offer] -> the supervisor of `serve --take-over`
The two may be of different releases, so this format alone has to stay what it is between versions:
FORMAT is asked for in the first line, and another one is refused with a sentence. Everything behind
it (control, workers, shared memory) each gateway has of its own.
One JSON document a line, over a Unix socket. Descriptors follow their offer in batches, one byte
each: the kernel takes at most 253 at once (unix(7), SCM_MAX_FD).
"""

import array
import os
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

FORMAT: Final = 1
DOOR: Final = "take-over.sock"  # in gateway.run_dir
BATCH: Final = 250
LINE_MAX: Final = 1 << 22  # bytes; a thousand instances are a tenth of it
PATIENCE_S: Final = 5.0  # for the other side to read or write what is in memory
FREEZE_MAX_S: Final = 60.0  # from the question to the commit; a table takes a second
SHARED: Final = ("admin", "registry", "lock", "instances_life", "instances_life_write")


class TakeOverRefused(Exception):
    """The message is a sentence: why, and what to do instead."""


@dataclass(frozen=True, slots=True)
class Ward:
    """An instance that goes along. Behind the named descriptors follows its pidfd, and the pipe on
    which its guard speaks.
    """

    name: str
    pid: int  # of its guard
    instance_pid: int  # as the guard has said
    speaks: bool  # the pipe is open
    label: str  # control's, see messages.Spawn


@dataclass(frozen=True, slots=True)
class Facts:
    """What both gateways have to agree on."""

    pid: int
    version: str  # of Sluicegate, for people
    listen: tuple[str, ...]  # addresses, as they are really bound
    admin: str
    registry: str
    store: str


@dataclass(frozen=True, slots=True)
class Offer:
    facts: Facts
    names: tuple[str, ...]  # of the descriptors, in the order in which they come
    wards: tuple[Ward, ...]

    @property
    def descriptors(self) -> int:
        """How many belong to it."""
        return len(self.names) + sum(1 + ward.speaks for ward in self.wards)

    @property
    def workers(self) -> int:
        """Listening sockets of one address: as many workers the successor has."""
        return len({name.partition(".")[0] for name in self.names if name.startswith("listen")})


def encode(document: dict[str, Any]) -> bytes:
    return orjson.dumps(document) + b"\n"


def shared(names: Iterable[str]) -> tuple[str, ...]:
    """Of the descriptors a supervisor holds, those that go along."""
    return tuple(name for name in names if name.startswith("listen") or name in SHARED)


def send(sock: socket.socket, offer: Offer, descriptors: Sequence[int]) -> None:
    """The offer and everything it names. `sock` is blocking with a timeout.

    Raises: OSError.
    """
    sock.sendall(encode({"offer": asdict(offer)}))
    for at in range(0, len(descriptors), BATCH):
        socket.send_fds(sock, [b"."], list(descriptors[at : at + BATCH]))


def receive(sock: socket.socket) -> tuple[Offer, list[int]]:
    """The offer, and its descriptors: not inheritable, and closed again if they are not all there.

    Raises: TakeOverRefused.
    """
    document = _line(sock)
    if "refused" in document:
        raise TakeOverRefused(str(document["refused"]))
    try:
        offer = _offer(document["offer"])
    except (KeyError, TypeError) as exc:
        raise TakeOverRefused(f"the running gateway's offer cannot be read: {exc!r}") from exc
    received: list[int] = []
    try:
        while len(received) < offer.descriptors:
            received += _batch(sock)
    except OSError as exc:
        for fd in received:
            os.close(fd)
        raise TakeOverRefused(f"the running gateway's offer did not come whole: {exc}") from exc
    return offer, received


def _batch(sock: socket.socket) -> list[int]:
    """Raises: OSError."""
    size = socket.CMSG_SPACE(BATCH * array.array("i").itemsize)
    data, ancillary, flags, _ = sock.recvmsg(1, size)
    found: list[int] = []
    for level, kind, body in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            numbers = array.array("i")
            numbers.frombytes(body[: len(body) - len(body) % numbers.itemsize])
            found += numbers
    for fd in found:
        os.set_inheritable(fd, False)  # received ones are inheritable
    if not data or not found or flags & socket.MSG_CTRUNC:
        for fd in found:
            os.close(fd)
        raise OSError("it ended early" if not data else "descriptors are missing (RLIMIT_NOFILE?)")
    return found


def _line(sock: socket.socket) -> dict[str, Any]:
    """The next line, and not a byte more: descriptors follow it.

    Raises: TakeOverRefused.
    """
    line = b""
    try:
        while not line.endswith(b"\n"):
            # What is behind the line stays in the socket: a peek says how far the line goes.
            ahead = sock.recv(1 << 16, socket.MSG_PEEK)
            size = ahead.find(b"\n") + 1 or len(ahead)
            if not ahead or len(line) + size > LINE_MAX:
                raise TakeOverRefused("the running gateway hung up before it offered anything")
            line += sock.recv(size)
        document: dict[str, Any] = orjson.loads(line)
    except OSError as exc:
        text = f"the running gateway does not answer ({exc}): nothing has changed"
        raise TakeOverRefused(text) from exc
    except orjson.JSONDecodeError as exc:
        raise TakeOverRefused("what answers there is no gateway") from exc
    return document


def _offer(given: dict[str, Any]) -> Offer:
    """Keys that we do not know are left alone: a later version may add some."""
    facts = {key: given["facts"][key] for key in Facts.__dataclass_fields__}
    facts["listen"] = tuple(facts["listen"])
    wards = (Ward(**{key: one[key] for key in Ward.__dataclass_fields__}) for one in given["wards"])
    return Offer(Facts(**facts), tuple(given["names"]), tuple(wards))


def ask(run_dir: Path) -> tuple[socket.socket, Offer, list[int]]:
    """Ask the gateway that runs there for everything; the socket stays, for the commit.

    Raises: TakeOverRefused.
    """
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(PATIENCE_S)
    try:
        sock.connect(str(run_dir / DOOR))
        with suppress(BrokenPipeError):  # hung up already: what it said before that can be read
            sock.sendall(encode({"take_over": FORMAT}))
        sock.settimeout(FREEZE_MAX_S)  # it finishes first what it is about to decide
        offer, descriptors = receive(sock)
    except OSError as exc:
        sock.close()
        text = f"the gateway in {run_dir} cannot be asked ({exc}): is it of an older version?"
        raise TakeOverRefused(f"{text} Stop it and start again without --take-over") from exc
    except TakeOverRefused:
        sock.close()
        raise
    return sock, offer, descriptors


@dataclass(slots=True)
class Lines:
    """One non-blocking end of the conversation: documents as they come, whole."""

    sock: socket.socket
    rest: bytes = field(default=b"")

    def read(self) -> tuple[list[dict[str, Any]], bool]:
        """What has come, and whether the other side is gone."""
        received, ended = b"", False
        try:
            while chunk := self.sock.recv(1 << 16):
                received += chunk
            ended = True
        except BlockingIOError:
            pass
        except OSError:
            ended = True
        *lines, self.rest = (self.rest + received).split(b"\n")
        if len(self.rest) > LINE_MAX:
            return [], True
        try:
            return [orjson.loads(line) for line in lines], ended
        except orjson.JSONDecodeError:
            return [], True

    def say(self, document: dict[str, Any]) -> bool:
        """Whether it could be said: the other side reads all the time, or it is lost."""
        try:
            line = encode(document)
            return self.sock.send(line) == len(line)
        except OSError:
            return False
