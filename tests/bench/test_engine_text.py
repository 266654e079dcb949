"""Ratios are taken inside rounds; the line is one and says both batches."""

from tests.bench.engine_text import OURS, PEER, Measured, Run, line, section, table


def measured(*rates: tuple[float, float]) -> Measured:
    rounds = [
        {OURS: Run(100, 100 / ours, 1.0), PEER: Run(100, 100 / peer, 2.0)} for ours, peer in rates
    ]
    return Measured("decode, 1 sequence", rounds)


def test_a_ratio_is_the_median_of_ratios_and_not_of_rates() -> None:
    # A neighbour slows both down in the second round; the medians' ratio would be 1.5.
    assert round(measured((30, 20), (10, 10), (40, 80)).ratio(), 3) == 1.0


def test_the_line_says_the_ratios_of_one_and_of_eight_and_the_seconds_to_ready() -> None:
    decodes = {1: measured((9, 10)), 4: measured((1, 10)), 8: measured((12, 10))}
    assert line(decodes, 5.26) == "decode_ratio_b1=0.90 decode_ratio_b8=1.20 ready_s=5.3"


def test_the_table_holds_rates_with_their_spread_the_ratio_and_cpu_time() -> None:
    text = table([measured((20, 10), (30, 10))])
    assert "| decode, 1 sequence" in text
    assert "25.0 (20.0-30.0)" in text
    assert "2.50" in text
    assert "20.0" in text  # CPU ms a token of the peer


def test_the_section_names_what_it_was_written_by_and_every_state_of_the_cache() -> None:
    text = section([measured((1, 1))], {"cold": 20.0, "warm": 6.0}, ["a fact"], ["a note"])
    for words in ("make bench-engine", "- a fact", "- a note", "cold", "20.0", "warm", "6.0"):
        assert words in text
