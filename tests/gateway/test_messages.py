"""Messages between processes arrive as they were sent, however the socket cuts them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.messages import (
    BY_NAME,
    Cut,
    Exited,
    Hello,
    LineBuffer,
    LostRequest,
    Message,
    Note,
    Publish,
    Sampled,
    Spawn,
    WereCut,
    decode,
    encode,
)
from tests.gateway.tables import COUNTS, NAMES, STANDINGS, tables

LOST = st.builds(LostRequest, COUNTS, NAMES, COUNTS, NAMES, st.floats(0, 1e6), COUNTS)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(Publish, tables()),
    st.builds(Note, st.dictionaries(NAMES, st.lists(STANDINGS, max_size=2).map(tuple), max_size=2)),
    st.builds(Cut, st.lists(COUNTS).map(tuple), st.lists(COUNTS).map(tuple), COUNTS),
    st.builds(Hello, COUNTS, COUNTS, COUNTS, COUNTS),
    st.builds(WereCut, COUNTS, st.lists(LOST, max_size=3).map(tuple)),
    st.builds(
        Sampled, COUNTS, NAMES, NAMES, NAMES, st.dictionaries(NAMES, NAMES | COUNTS), st.booleans()
    ),
    st.builds(Exited, NAMES, COUNTS, st.none() | st.integers(-64, 255), st.booleans()),
    st.builds(
        Spawn,
        NAMES,
        st.lists(st.text()).map(tuple),
        st.dictionaries(NAMES, NAMES),
        st.dictionaries(NAMES, NAMES),
        st.booleans(),
    ),
)


@given(st.lists(MESSAGES, max_size=5), st.data())
def test_messages_survive_any_cutting_of_the_stream(
    messages: list[Message], data: st.DataObject
) -> None:
    stream = b"".join(encode(message) for message in messages)
    buffer, received = LineBuffer(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        received += buffer.feed(stream[:size])
        stream = stream[size:]
    assert received == messages
    assert buffer.rest == b""


def test_an_unknown_message_says_what_may_have_happened() -> None:
    with pytest.raises(ValueError, match="unknown message Sing: are two versions"):
        decode(b'{"Sing": {}}')


def test_every_message_is_one_line() -> None:
    assert encode(Exited("a\nb", 1, None)).count(b"\n") == 1


def test_every_kind_is_known_by_its_name() -> None:
    assert all(name == kind.__name__ for name, kind in BY_NAME.items())
