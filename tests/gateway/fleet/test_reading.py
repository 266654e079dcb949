from gateway.fleet.reading import Document, Reading
from gateway.store.base import UNREADABLE


def seconds(key: str, document: Document) -> float:
    return float(document["seconds"])


def test_what_cannot_be_read_is_left_out_and_named() -> None:
    reading = Reading({"loads": {"one": {"seconds": 1}, "two": {}, "three": {"seconds": "x"}}})
    assert reading.each("loads", seconds) == {"one": 1.0}
    assert [text.partition(" in the")[0] for text in reading.unread] == [
        "loads 'two'",
        "loads 'three'",
    ]
    assert reading.each("others", seconds) == {}


def test_what_is_no_document_at_all_is_named_from_the_beginning() -> None:
    reading = Reading({UNREADABLE: {"drains a": {"reason": "cut short"}}})
    assert reading.unread == ["drains a in the store cannot be read: cut short; left out"]
