"""Outputs of load generators are read whole, or refused."""

import pytest

from tests.bench.outputs import LoadFailed, Requests, Streams, read_gauge, read_sse, read_wrk

WRK = """Running 2s test @ http://127.0.0.1:43091/v1/completions
  1 threads and 4 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   127.25ms   65.19ms   1.20s    66.67%
    Req/Sec    30.95     13.73    70.00     70.00%
  Latency Distribution
     50%  850.00us
     75%  178.97ms
     90%  219.45ms
     99%    1.20s 
  12062 requests in 2.01s, 57.82KB read
Requests/sec:   6030.78
Transfer/sec:     28.70KB
"""  # noqa: W291 - wrk writes a space behind seconds
SSE = (
    '{"seconds":2.002,"events":40019,"live":200,"errors":%d,"p50_us":45,"p99_us":4230,'
    '"first_p50_us":206,"first_p99_us":4417}\n'
)


def test_what_wrk_prints_is_read_in_microseconds() -> None:
    assert read_wrk(WRK) == Requests(12062, 6030.78, 850.0, 1_200_000.0)


@pytest.mark.parametrize(
    "failure",
    ["  Non-2xx or 3xx responses: 3\n", "  Socket errors: connect 0, read 4, write 0, timeout 0\n"],
    ids=["status", "sockets"],
)
def test_a_load_with_a_failed_request_is_refused(failure: str) -> None:
    with pytest.raises(LoadFailed, match=failure.strip()):
        read_wrk(WRK + failure)


def test_what_is_not_the_output_of_wrk_is_refused() -> None:
    with pytest.raises(LoadFailed, match="not the output"):
        read_wrk("Usage: wrk <options> <url>")
    with pytest.raises(LoadFailed, match="--latency"):
        read_wrk(WRK.replace("%", ""))


def test_streams_are_read_when_all_of_them_lived_to_the_end() -> None:
    seen = read_sse(SSE % 0)
    assert seen == Streams(2.002, 40019, 200, 0, 45, 4230, 206)
    seen.check(200)


@pytest.mark.parametrize(("errors", "wanted"), [(1, 200), (0, 201)], ids=["errors", "missing"])
def test_lost_streams_are_refused(errors: int, wanted: int) -> None:
    with pytest.raises(LoadFailed):
        read_sse(SSE % errors).check(wanted)


def test_a_window_without_an_event_is_refused() -> None:
    with pytest.raises(LoadFailed, match="not one event"):
        read_sse((SSE % 0).replace("40019", "0")).check(200)


def test_what_is_not_the_output_of_sse_is_refused() -> None:
    with pytest.raises(LoadFailed, match="not the output"):
        read_sse("")


def test_a_gauge_is_the_sum_over_its_labels_and_no_other_metric() -> None:
    text = """# HELP sluicegate_in_flight How many?
sluicegate_in_flight{model="m",instance="a"} 2.0
sluicegate_in_flight{model="m",instance="b"} 1.0
sluicegate_in_flight_never 40.0
sluicegate_plain 7
"""
    assert read_gauge(text, "sluicegate_in_flight") == 3
    assert read_gauge(text, "sluicegate_plain") == 7
    assert read_gauge(text, "sluicegate_none") == 0
