"""A script of HTTP cases gets a gateway in front of the port it opens, and its code comes back."""

from pathlib import Path

import pytest

from tests.bench.run_cases import run

# The command line is that of tests/http_cases.py; one answer, then an exit code of its own.
SCRIPT = """
import argparse, http.server, threading, urllib.request

parser = argparse.ArgumentParser()
parser.add_argument("gateway")
parser.add_argument("--upstream-port", type=int)
parser.add_argument("--metrics")
parser.add_argument("--inflight-metric")
parser.add_argument("--only")
given = parser.parse_args()
assert given.only == "A*"

class Stub(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "4")
        self.end_headers()
        self.wfile.write(b"mine")
    def log_message(self, *said):
        pass

stub = http.server.HTTPServer(("127.0.0.1", given.upstream_port), Stub)
threading.Thread(target=stub.serve_forever, daemon=True).start()
assert urllib.request.urlopen(f"http://{given.gateway}/v1/any/path").read() == b"mine"
assert given.inflight_metric in urllib.request.urlopen(given.metrics).read().decode()
raise SystemExit(7)
"""


@pytest.mark.live
async def test_the_script_meets_its_own_stub_through_the_gateway_and_its_code_is_ours(
    tmp_path: Path,
) -> None:
    script = tmp_path / "cases.py"
    script.write_text(SCRIPT)
    assert await run(str(script), ["--only", "A*"]) == 7
