"""What clients were promised against what they got, and who says why: the account of a run.

Floor 1, pure.
Every request ends in one way. One that was not answered whole is lost, and a loss has a name when
somebody who is not the client says so: the answer itself (an error that the gateway authored), the
gateway's log (the request's own id), or the kernel (the worker died with the request unread in its
socket). Of each dead worker one request may have been in hand: read a moment ago, not noted yet.
`unnamed` is the rest, and has to be 0.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final


class End(Enum):
    """How a request ended, as its client saw it."""

    WHOLE = "answered"
    LEFT = "left"  # by the client's own wish
    REFUSED = "refused"  # a whole answer that the gateway authored
    BROKEN = "broken"  # the connection ended before the answer did
    WRONG = "wrong"  # whole, and not the answer to this request


# Refusals after an attempt: the log has to name them as well.
LOGGED: Final = {"connect_failed", "instance_bad_framing", "instance_reset", "instance_timed_out"}
UNREAD: Final = "unread, worker died"
NO_INSTANCE: Final = "unplaced, worker died"
IN_HAND: Final = "in hand, worker died"
IN_HAND_S: Final = 0.5  # from a client's first byte to the worker's note of it, on a busy machine


@dataclass(slots=True)
class Asked:
    """One request. `began`, `ended`: monotonic seconds; `begun`: a byte of the answer came."""

    name: str  # its x-request-id
    kind: str
    began: float
    port: int = 0
    end: End | None = None
    ended: float = 0.0
    begun: bool = False
    instance: str = ""
    code: str = ""  # x-sluicegate-error
    why: str = ""


@dataclass(frozen=True, slots=True)
class Kill:
    """One SIGKILL. The victim was stopped first, so `held` is exact: requests in flight there; None
    when control was dead as well and nobody could say.

    `ports`: clients' ports of the connections that a worker held; True: with bytes it had not read.
    """

    what: str  # worker, control, or the instance's name
    at: float  # when it stopped
    held: frozenset[str] | None = frozenset()
    ports: Mapping[int, bool] = field(default_factory=dict)


@dataclass(slots=True)
class Account:
    """`sent` are those whose client stayed; `false`: named as lost, but answered whole."""

    sent: int = 0
    answered: int = 0
    left: int = 0
    lost: Counter[str] = field(default_factory=Counter)  # by cause
    unnamed: list[Asked] = field(default_factory=list)
    false: list[str] = field(default_factory=list)

    @property
    def uncounted(self) -> int:
        """Those that no instance ever had: the gateway's counters of requests are by instance."""
        return self.lost[UNREAD] + self.lost[NO_INSTANCE] + self.lost[IN_HAND]

    @property
    def last_line(self) -> str:
        lost = self.lost.total() + len(self.unnamed)
        return f"sent={self.sent} answered={self.answered} lost={lost} unnamed={len(self.unnamed)}"


def audit(asked: Iterable[Asked], named: Mapping[str, str], kills: Sequence[Kill]) -> Account:
    """The account of a run; `named`: request id -> cause, as the gateway's log has them."""
    account, handless = Account(), list(kills)
    for one in asked:
        if one.end is End.LEFT:
            account.left += 1
            continue
        account.sent += 1
        if one.end is End.WHOLE:
            account.answered += 1
            if one.name in named:
                account.false.append(one.name)
        else:
            cause = _cause(one, named, kills)
            if cause is None and (kill := _in_hand(one, handless)) is not None:
                handless.remove(kill)
                cause = IN_HAND
            if cause is None:
                account.unnamed.append(one)
            else:
                account.lost[cause] += 1
    return account


def _cause(one: Asked, named: Mapping[str, str], kills: Sequence[Kill]) -> str | None:
    """Why it was lost, when somebody says so."""
    if one.end is End.REFUSED and one.code not in LOGGED:
        return one.code
    if one.end in (End.REFUSED, End.BROKEN) and one.name in named:
        return named[one.name]
    if one.end is End.BROKEN and not one.begun and any(_unread(one, kill) for kill in kills):
        return UNREAD
    return None


def _unread(one: Asked, kill: Kill) -> bool:
    """The worker cannot have read it: it came when that stood still, or lay in its socket."""
    if one.port not in kill.ports or one.ended < kill.at:
        return False
    return one.began >= kill.at or kill.ports[one.port]


def _in_hand(one: Asked, kills: Iterable[Kill]) -> Kill | None:
    """The death that may have met the request between its reading and its note: a worker does one
    thing at a time, so there is one such request at most."""
    if one.end is not End.BROKEN or one.begun:
        return None
    for kill in kills:
        fresh = 0 <= kill.at - one.began < IN_HAND_S
        if fresh and one.port in kill.ports and one.name not in (kill.held or ()):
            return kill
    return None


def kept_promise(kill: Kill, asked: Mapping[str, Asked], named: Mapping[str, str]) -> Counter[str]:
    """What became of the requests that the victim held: `lost` (by name), `answered`, `left`."""
    became: Counter[str] = Counter()
    for name in kill.held or ():
        one = asked.get(name)
        if one is None:
            became["unknown"] += 1
        elif one.end is End.WHOLE:
            became["answered"] += 1
        elif one.end is End.LEFT:
            became["left"] += 1
        else:
            became["lost" if name in named or one.code else "unnamed"] += 1
    return became
