"""Why an instance cannot start or cannot take a request, as sentences for people.

Floor 0, pure.

    InstanceError
    +-- SnapshotInvalid    a file is missing, changed or unreadable        exit 78, not restarted
    +-- DependencyMissing  something must be installed or configured       exit 78, not restarted
    +-- LoadFailed         out of memory, compile error, verification      exit 1, restarted
    +-- CannotListen       an address is taken, or is not ours             exit 2
    +-- RequestInvalid     the client's mistake, with its path             400
    |   +-- PromptTooLong  no room for it and one token in the context     400
    +-- UnknownModel       another model than the one served here          404
    +-- QueueFull          every slot and every place in the queue is held 503, refused: full
    +-- Draining           refuses new work on purpose                     503, refused: draining
    +-- NotReady           still on its way to READY                       503
    +-- ServerAway         nothing reached the server it stands for        503, refused: away
    +-- ServerGone         the server it stands for gave no answer         502
    +-- EngineFailed       the model failed in the middle of the request   500
"""

from typing import Final

EXIT_UNUSABLE: Final = 78  # EX_CONFIG of sysexits.h: starting again would change nothing


class InstanceError(Exception):
    """The message is a sentence that says what to do next where anything can be done."""


class SnapshotInvalid(InstanceError):
    pass


class DependencyMissing(InstanceError):
    pass


class LoadFailed(InstanceError):
    pass


class CannotListen(InstanceError):
    pass


class RequestInvalid(InstanceError):
    """`path` is the dotted place of the mistake in the request body, empty for the whole of it."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path


class PromptTooLong(RequestInvalid):
    pass


class UnknownModel(InstanceError):
    pass


class QueueFull(InstanceError):
    pass


class Draining(InstanceError):
    pass


class NotReady(InstanceError):
    pass


class ServerAway(InstanceError):
    pass


class ServerGone(InstanceError):
    pass


class EngineFailed(InstanceError):
    pass
