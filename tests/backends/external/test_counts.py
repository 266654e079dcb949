"""Prometheus' text of servers, as they really write it and as they should not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.external.counts import STALE_S, Counts, beside, parse

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="/models/a b{c}"} 3.0
vllm:num_requests_running{engine="1",model_name="/models/a b{c}"} 1.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:prompt_tokens_total{engine="0",model_name="m"} 1.5e+03
vllm:generation_tokens_total{engine="0",model_name="m"} 40.0
vllm:iteration_tokens_total_bucket{engine="0",le="1.0",model_name="m"} 9.0
vllm:iteration_tokens_total_count{engine="0",model_name="m"} 9.0
vllm:request_queue_time_seconds_sum{engine="0",model_name="m"} 1.25
vllm:request_queue_time_seconds_count{engine="0",model_name="m"} 5.0
python_gc_objects_collected_total{generation="0"} 7.0
"""
MINDIE = """\
# TYPE num_requests_running gauge
num_requests_running{model_name="llama2-7b"} 4
num_requests_waiting{model_name="llama2-7b"} 1
num_requests_swapped{model_name="llama2-7b"} 2
prompt_tokens_total{model_name="llama2-7b"} 9
npu_cache_usage_perc{model_name="llama2-7b"} 30
exposer_request_latencies{quantile="0.5"} Nan
"""


def test_vllm_is_understood_and_its_engines_added_up() -> None:
    assert parse(VLLM) == Counts(4, 2, 1500, 40, 9, 1.25, 5.0, 0.75)


def test_mindie_writes_the_same_without_a_prefix() -> None:
    assert parse(MINDIE) == Counts(4, 3, prompt_tokens=9, kv_ratio=0.3)


def test_an_instance_of_ours_is_understood() -> None:
    text = 'sluicegate_instance_in_flight{model="m"} 2.0\nsluicegate_instance_steps_total{a="b"} 8'
    counts = parse(text)
    assert counts == Counts(running=2, steps=8)
    assert (counts.holds, counts.progress) == (2, 8)


@pytest.mark.parametrize(
    "text",
    ["", "\x00\xff", "<html>no</html>", "vllm:num_requests_running{", "num_requests_running NaN",
     "num_requests_running -1", "num_requests_running many", "other_total 4"],
)  # fmt: skip
def test_what_is_not_understood_says_nothing(text: str) -> None:
    assert parse(text) is None


@given(st.text())
def test_no_text_breaks_it(text: str) -> None:
    parse(text)


def test_what_the_server_holds_beside_ours_counts_until_it_stands_still() -> None:
    held = Counts(running=3, waiting=2)
    assert beside(held, own=4, still_s=0.0) == 1
    assert beside(held, own=6, still_s=0.0) == 0
    assert beside(held, own=0, still_s=STALE_S - 0.1) == 5
    assert beside(held, own=0, still_s=STALE_S) == 0  # aborted, and never updated again
    assert beside(Counts(), own=0, still_s=0.0) == 0
