"""Sockets are opened once, shared by all workers, and an address in use is a sentence."""

import os
import socket
from pathlib import Path

import pytest

from gateway.listening import AddressUnusable, open_listeners, reserve


def close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def test_every_worker_gets_a_socket_on_the_same_port() -> None:
    bound = open_listeners("127.0.0.1:0", "gateway.listen", 3)
    assert len({one.address for one in bound}) == 1
    assert len({os.fstat(one.descriptor).st_ino for one in bound}) == 3
    port = int(bound[0].address.rpartition(":")[2])
    socket.create_connection(("127.0.0.1", port), timeout=300).close()
    close(*(one.descriptor for one in bound))


def test_a_port_that_another_gateway_listens_on_is_named_with_its_key() -> None:
    (held,) = open_listeners("127.0.0.1:0", "gateway.listen", 1)
    with pytest.raises(AddressUnusable, match=rf"^{held.address} is in use .*gateway\.listen"):
        open_listeners(held.address, "gateway.listen", 1)
    with pytest.raises(AddressUnusable, match=r"registry\.listen"):
        reserve(held.address, "registry.listen")
    close(held.descriptor)


def test_a_reserved_address_takes_no_connection_from_who_listens_on_it() -> None:
    held = reserve("127.0.0.1:0", "registry.listen")
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind(("127.0.0.1", int(held.address.rpartition(":")[2])))
        server.listen()
        client = socket.create_connection(server.getsockname(), timeout=300)
        server.accept()[0].close()  # the reservation takes no connection away
        client.close()
    close(held.descriptor)


def test_an_address_that_is_not_ours_is_a_sentence() -> None:
    with pytest.raises(AddressUnusable, match=r"cannot listen on 192\.0\.2\.1:80"):
        open_listeners("192.0.2.1:80", "gateway.listen", 1)


def test_a_unix_socket_is_one_socket_held_by_every_worker(tmp_path: Path) -> None:
    bound = open_listeners(f"unix:{tmp_path}/g.sock", "gateway.listen", 2)
    assert len({os.fstat(one.descriptor).st_ino for one in bound}) == 1
    with pytest.raises(AddressUnusable, match="in use"):
        open_listeners(f"unix:{tmp_path}/g.sock", "gateway.listen", 1)
    close(*(one.descriptor for one in bound))


def test_a_socket_file_that_a_dead_gateway_left_is_no_hindrance(tmp_path: Path) -> None:
    (dead,) = open_listeners(f"unix:{tmp_path}/g.sock", "gateway.listen", 1)
    close(dead.descriptor)
    (bound,) = open_listeners(f"unix:{tmp_path}/g.sock", "gateway.listen", 1)
    close(bound.descriptor)


def test_a_path_too_long_for_a_unix_socket_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(AddressUnusable, match=r"gateway\.listen\): AF_UNIX path too long"):
        open_listeners(f"unix:{tmp_path / ('x' * 120)}", "gateway.listen", 1)


def test_a_file_that_is_not_a_socket_is_never_removed(tmp_path: Path) -> None:
    (tmp_path / "g.sock").write_text("precious")
    with pytest.raises(AddressUnusable):
        open_listeners(f"unix:{tmp_path}/g.sock", "gateway.listen", 1)
    assert (tmp_path / "g.sock").read_text() == "precious"


def test_ipv6_is_shown_in_brackets() -> None:
    (bound,) = open_listeners("[::1]:0", "gateway.listen", 1)
    assert bound.address.startswith("[::1]:")
    close(bound.descriptor)
