"""`python -m gateway.mains.worker`: the process of one worker.

Floor 5, I/O.
Signals that a terminal or a service manager sends to the whole group are ignored: when to stop is
control's word, so that what is held can be finished.
"""

import argparse
import asyncio
import resource
import signal
import sys
from random import Random
from time import monotonic_ns
from typing import Final

import uvloop

from gateway.dataplane.bells import Bells
from gateway.dataplane.plane import Plane
from gateway.dataplane.worker import Worker
from gateway.mains.life import end_with
from gateway.messages import Suspected
from gateway.state.ledger import Ledger
from gateway.state.shared import Segment
from gateway.telemetry.log import configure

RESERVED_FDS: Final = 64  # listening sockets, control, log, the loop's own


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gateway.mains.worker", description="one worker")
    parser.add_argument("--index", type=int, required=True, help="whose sockets are its own")
    parser.add_argument("--row", type=int, required=True, help="its row of the segment")
    parser.add_argument("--control", required=True, help="path of control's Unix socket")
    parser.add_argument("--segment-fd", type=int, required=True)
    parser.add_argument("--life-fd", type=int, required=True)
    parser.add_argument("--listen-fds", type=listen_fds, required=True, help="index:fd,index:fd")
    parser.add_argument("--bell-fds", type=bell_fds, default=(), help="fd,fd: one for each row")
    parser.add_argument("--parent", type=int, default=None, help="pid that it must not outlive")
    parser.add_argument("--wait", action="store_true", help="accept nothing before it is told to")
    parser.add_argument("--log-format", choices=("json", "text"), default="json")
    parser.add_argument("--log-level", default="info")
    return parser.parse_args(given)


def listen_fds(text: str) -> dict[int, list[int]]:
    """Descriptors by worker index, from `0:7,0:8,1:9`."""
    sockets: dict[int, list[int]] = {}
    for pair in filter(None, text.split(",")):
        index, _, fd = pair.partition(":")
        sockets.setdefault(int(index), []).append(int(fd))
    return sockets


def bell_fds(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def clients_max() -> int:
    """Client connections that our descriptors suffice for: a relayed one takes two."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else max(16, (soft - RESERVED_FDS) // 2)


async def serve(given: argparse.Namespace) -> None:
    segment = Segment(given.segment_fd)
    ledger = Ledger(segment, given.row)
    worker: Worker

    def suspect(message: Suspected) -> None:
        worker.link.say(message)

    loop = asyncio.get_running_loop()
    plane = Plane(loop, ledger, Random(), monotonic_ns, suspect, clients_max())
    if given.bell_fds:
        Bells(plane, segment, given.row, given.bell_fds)
    where = (given.index, given.row, given.control, given.listen_fds)
    worker = Worker(plane, *where, given.wait)
    await worker.run()


def main() -> None:
    given = arguments()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    end_with(given.life_fd, given.parent)
    configure(given.log_format, given.log_level, process="worker", index=given.index)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(given))


if __name__ == "__main__":
    main()
