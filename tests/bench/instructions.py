"""Instructions per request and per chunk of the data plane alone: no sockets, no loop, no kernel.

Floor 5, I/O.
Counted by valgrind, so that neighbours, caches and clock do not matter: what a change bought is
seen on any machine, to a part in a thousand. It ranks changes; what a request costs in the end is
for `compare` to say. Counts of two runs are subtracted, which leaves out whatever happens once.
"""

import argparse
import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.bench.programs import ROOT, newest_build
from tests.gateway.dataplane.rig import FakeTransport, Rig
from tests.gateway.plain import route, table, target, version

KINDS: Final = ("post", "uniq", "sse")
COUNT: Final = 2048
CLIENTS: Final = 32
INSTANCES: Final = 5

BODY: Final = b'{"model":"m","max_tokens":16,"temperature":0.7,"seed":1,"prompt":"%s"}' % (
    b"a" * 230
)
HEAD: Final = (
    b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nContent-Type: application/json\r\n"
    b"Authorization: Bearer sk-1234567890abcdef\r\nUser-Agent: OpenAI/Python 1.99.0\r\n"
    b"Accept: application/json\r\nContent-Length: %d\r\n" % len(BODY)
)
OWN: Final = b"traceparent: 00-%032x-%016x-01\r\nX-Request-Id: %x\r\n"
ANSWER: Final = (
    b"HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 00:00:00 GMT\r\nserver: uvicorn\r\n"
    b"content-length: 800\r\ncontent-type: application/json\r\n\r\n" + b"x" * 800
)
EVENT: Final = b'data: {"id":"1","choices":[{"index":0,"text":" token"}]}\n\n'
CHUNK: Final = b"%x\r\n%s\r\n" % (len(EVENT), EVENT)
STREAM: Final = (
    b"HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 00:00:00 GMT\r\nserver: uvicorn\r\n"
    b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n" + CHUNK
)


def request(kind: str, number: int) -> bytes:
    own = OWN % (number, number, number) if kind == "uniq" else b""
    return HEAD + own + b"\r\n" + BODY


async def run(kind: str, count: int) -> None:
    targets = [target(slot, 9000 + slot) for slot in range(1, INSTANCES + 1)]
    rig = Rig(table(1, route(version(*targets))), leases=CLIENTS)
    clients: list[FakeTransport] = []
    carrying: list[FakeTransport] = []
    for number in range(CLIENTS):
        client, instance = await rig.asked(request(kind, number))
        instance.feed(STREAM if kind == "sse" else ANSWER)
        clients.append(client)
        carrying.append(instance)
    for number in range(count):
        client = clients[number % CLIENTS]
        if kind == "sse":
            carrying[number % CLIENTS].protocol.data_received(CHUNK)
        else:
            client.protocol.data_received(request(kind, number))
            connection = client.protocol.exchange.connection
            connection.data_received(ANSWER)
            connection.transport.out = b""
        client.out = b""
    rig.close()


def counted(kind: str, count: int, folder: Path | None) -> int:
    """Instructions of a whole process. Raises: SystemExit when valgrind is not there."""
    path = f"{folder}:{ROOT}" if folder else str(ROOT)
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1", "PYTHONHASHSEED": "0"}
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    command += [sys.executable, "-m", "tests.bench.instructions", "--run", kind, str(count)]
    try:
        said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        sys.exit("bench: valgrind is not installed")
    found = re.search(r"Collected : (\d+)", said.stderr)
    assert found is not None, said.stderr
    return int(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.bench.instructions", description=__doc__)
    parser.add_argument("--run", nargs=2, metavar=("KIND", "COUNT"), help="the load itself")
    given = parser.parse_args()
    if given.run:
        asyncio.run(run(given.run[0], int(given.run[1])))
        return
    for name, folder in (("compiled", newest_build()), ("interpreted", None)):
        for kind in KINDS:
            more, fewer = counted(kind, 2 * COUNT, folder), counted(kind, COUNT, folder)
            print(f"{name} {kind}: {(more - fewer) / COUNT:,.0f} instructions", flush=True)


if __name__ == "__main__":
    main()
