"""Addresses as people write them, and as others dial them."""

import pytest

from backends.settings import Address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:0", Address("127.0.0.1", 0)),
        ("localhost:8000", Address("localhost", 8000)),
        ("[::1]:65535", Address("::1", 65535)),
        (":8000", Address("", 8000)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, address: Address) -> None:
    assert Address.parse(text) == address


@pytest.mark.parametrize("text", ["", "8000", "host", "host:", "host:x", "host:65536", "::1:80"])
def test_anything_else_is_refused_with_the_rule(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        Address.parse(text)


def test_others_dial_the_port_that_was_bound() -> None:
    assert Address("127.0.0.1", 0).reached_at(4711, "") == "127.0.0.1:4711"
    assert Address("::1", 0).reached_at(4711, "") == "[::1]:4711"


def test_nobody_can_dial_a_wildcard() -> None:
    assert Address("0.0.0.0", 0).reached_at(80, "10.1.2.3") == "10.1.2.3:80"
    assert Address("10.0.0.1", 0).reached_at(80, "10.1.2.3") == "10.1.2.3:80"
