import pytest

from admin.guard import check_host, check_origin
from admin.refusals import Refused


@pytest.mark.parametrize(
    ("method", "host", "origin"),
    [
        ("POST", "127.0.0.1:9901", None),
        ("POST", "127.0.0.1:9901", "http://127.0.0.1:9901"),
        ("PUT", "LOCALHOST:9901", "http://localhost:9901"),
        ("DELETE", "[::1]:9901", "https://[::1]:9901"),
        ("GET", "127.0.0.1:9901", "http://evil.example"),
    ],
)
def test_reading_and_our_own_origin_pass(method: str, host: str, origin: str | None) -> None:
    check_origin(method, host, origin)


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "", "http://127.0.0.1:9902", "http://127.0.0.1:9901.evil.com"],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_a_change_from_another_origin_is_refused(method: str, origin: str) -> None:
    with pytest.raises(Refused):
        check_origin(method, "127.0.0.1:9901", origin)


@pytest.mark.parametrize(
    "host", ["127.0.0.1:9901", "10.1.2.3", "[::1]:9901", "localhost", "a.localhost:1", ""]
)
def test_addresses_and_localhost_are_ours(host: str) -> None:
    check_host(host)


@pytest.mark.parametrize("host", ["evil.example:9901", "localhost.evil.example", "127.0.0.1.x"])
def test_names_of_the_public_dns_are_not(host: str) -> None:
    with pytest.raises(Refused):
        check_host(host)
