"""The document holds everything that a run has found, and says what it has not."""

from tests.bench.document import document
from tests.bench.report import OURS
from tests.bench.samples import samples


def test_the_document_holds_facts_targets_and_both_tables() -> None:
    found = [
        *samples("post_us", {"nginx": [10.0], OURS: [12.0]}),
        *samples("held_streams", {OURS: [10_000.0]}),
    ]
    text = document(found, ["nginx", OURS], ["two cores", "four rounds"], [])
    assert "- two cores\n- four rounds\n" in text
    assert "at most 1.30" in text
    assert "1.20" in text
    assert "10,000" in text
    assert "Missing from this run" not in text
    assert text.endswith("\n")


def test_what_is_missing_is_said_under_the_table() -> None:
    text = document([], [], ["two cores"], ["vllm-router is left out: it is not installed"])
    assert text.count("Nothing was measured.") == 2
    assert "Missing from this run:\n\n- vllm-router is left out" in text
