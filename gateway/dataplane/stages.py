"""How far an exchange has come, and what may follow.

Floor 1, pure.
The table is the whole truth: an event without a row is a bug and raises, leaving the stage as it
was. Late news of an exchange that is over has rows that change nothing.
"""

from typing import Final

# --- stages ---
SETTLED: Final = 0  # no request, or its end
UNPLACED: Final = 1  # its body is read for the model, it waits for room, or it is sent again
DIALLING: Final = 2
SENDING: Final = 3
AWAITING: Final = 4  # the whole request is out
STREAMING: Final = 5  # the response has begun

# What people read; a stage that holds a lease is called as the lease calls it.
STAGE_NAMES: Final = ("settled", "unplaced", "connecting", "sending", "waiting", "streaming")

# --- events ---
BEGAN: Final = 0
DIAL_BEGAN: Final = 1
ATTACHED: Final = 2  # a connection, dialled or pooled, takes what is here of the request
SENT: Final = 3  # all of it is out
ANSWERED: Final = 4
ENDED: Final = 5
REPLAYED: Final = 6
REFUSED: Final = 7  # by us: an answer of our own ends it
CLIENT_LOST: Final = 8
INSTANCE_LOST: Final = 9
CUT: Final = 10
EVENTS: Final = 11

IMPOSSIBLE: Final = -1

_LIVE: Final = (UNPLACED, DIALLING, SENDING, AWAITING, STREAMING)
_PLACED: Final = (DIALLING, SENDING, AWAITING)

MOVES: Final[dict[tuple[int, int], int]] = {
    (SETTLED, BEGAN): UNPLACED,
    (UNPLACED, DIAL_BEGAN): DIALLING,
    (UNPLACED, ATTACHED): SENDING,
    (DIALLING, ATTACHED): SENDING,
    (UNPLACED, SENT): AWAITING,  # the whole of it was here
    (DIALLING, SENT): AWAITING,
    (SENDING, SENT): AWAITING,
    (STREAMING, SENT): STREAMING,  # the answer came before the request was whole
    (SENDING, ANSWERED): STREAMING,
    (AWAITING, ANSWERED): STREAMING,
    (STREAMING, ENDED): SETTLED,
    **{(stage, REPLAYED): UNPLACED for stage in _PLACED},
    **{(stage, REFUSED): SETTLED for stage in (UNPLACED, *_PLACED)},
    **{(stage, CLIENT_LOST): SETTLED for stage in _LIVE},
    **{(stage, INSTANCE_LOST): SETTLED for stage in (*_PLACED, STREAMING)},
    **{(stage, CUT): SETTLED for stage in _LIVE},
    # Late, and ignored.
    **{(SETTLED, event): SETTLED for event in (CLIENT_LOST, INSTANCE_LOST, CUT)},
}

# The same by arithmetic: stage * EVENTS + event; a list costs half of a tuple-keyed dictionary.
_NEXT: Final[list[int]] = [
    MOVES.get((stage, event), IMPOSSIBLE)
    for stage in range(len(STAGE_NAMES))
    for event in range(EVENTS)
]


class IllegalMove(Exception):
    """An event that cannot happen in this stage: a bug."""


def next_stage(stage: int, event: int) -> int:
    """Raises: IllegalMove."""
    following = _NEXT[stage * EVENTS + event]
    if following == IMPOSSIBLE:
        raise IllegalMove(f"event {event} while {STAGE_NAMES[stage]}")
    return following
