import pytest

from gateway.validation.judging import Outcome, Pair, Rules, Tried, judge, unusable
from gateway.validation.orders import (
    Order,
    Way,
    decode_order,
    decode_report,
    encode_order,
    encode_report,
)


def test_an_order_arrives_as_it_was_given() -> None:
    for order in (
        Order("s.jsonl", "m", ("http://a:1", "http://b:2"), ()),
        Order("s", "", ("a",), ("b",), Rules(0.5, 3.0, "similar", 0.7), Way(3, 1.5, 9.0, 4)),
    ):
        assert decode_order(encode_order(order)) == order


def test_a_report_arrives_as_it_was_made() -> None:
    served, failed = Tried(Outcome.SERVED, "", 0.1, 0.1), Tried(Outcome.FAILED, "500")
    for report in (
        unusable("no samples"),
        judge([Pair(1, "/", failed, served), Pair(2, "/", served)], Rules()),
    ):
        assert decode_report(encode_report(report)) == report


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b'{"passed": true}'])
def test_what_is_no_report_is_an_error(raw: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        decode_report(raw)
