import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from admin.calls import Calls, How, Unanswered
from gateway.control import Denied, Problem
from tests.admin.conftest import Served
from tests.admin.fakes import Asked


def _refusal(calls: Calls, path: str = "/status") -> Unanswered:
    with pytest.raises(Unanswered) as unanswered:
        calls.call("GET", path)
    return unanswered.value


def _address(listener: socket.socket) -> str:
    return f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def stranger() -> Iterator[tuple[str, list[bytes]]]:
    """A server that is no gateway: its address, and the answers it gives, one a connection."""
    answers: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(answers[0])

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield _address(listener), answers
        thread.join(300)


def test_nobody_there_is_a_sentence_that_says_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = _address(listener)
    unanswered = _refusal(Calls(address))
    assert unanswered.code == "no_gateway"
    assert unanswered.message == (
        f"no gateway answers at {address}: is `sluicegate serve` running? (--admin HOST:PORT)"
    )


def test_a_missing_socket_file_is_nobody_there(tmp_path: Path) -> None:
    unanswered = _refusal(Calls(f"unix:{tmp_path}/admin.sock"))
    assert unanswered.code == "no_gateway"
    assert "is `sluicegate serve` running?" in unanswered.message


def test_a_gateway_on_a_unix_socket_is_called_localhost(tmp_path: Path) -> None:
    asked: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{tmp_path}/s")
        listener.listen(1)

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                asked.append(connection.recv(65_536))
                connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{"a":1}')

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        assert Calls(f"unix:{tmp_path}/s").call("GET", "/status") == {"a": 1}
        thread.join(300)
    assert b"\r\nHost: localhost\r\n" in asked[0]


def test_a_gateway_that_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # takes the call, never answers
        address = _address(listener)
        unanswered = _refusal(Calls(address, timeout_s=0.01))
    assert unanswered.code == "no_gateway"
    assert unanswered.message == f"the gateway at {address} has not answered for 0.01 s"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n<htm>",
        b"HTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
    ],
    ids=["html", "another error", "a list"],
)
def test_a_stranger_on_the_port_is_not_taken_for_a_gateway(
    stranger: tuple[str, list[bytes]], answer: bytes
) -> None:
    address, answers = stranger
    answers.append(answer)
    assert _refusal(Calls(address)).code == "not_ours"


@pytest.mark.parametrize(
    "answer",
    [b"SSH-2.0-OpenSSH\r\n", b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"],
    ids=["no http", "nothing", "cut"],
)
def test_a_connection_that_breaks_is_no_gateway(
    stranger: tuple[str, list[bytes]], answer: bytes
) -> None:
    address, answers = stranger
    answers.append(answer)
    assert _refusal(Calls(address)).code == "no_gateway"


def test_a_refusal_comes_back_with_its_code_sentence_and_problems(served: Served) -> None:
    problems = (Problem("a", "is wrong"), Problem("b", "too"))
    served.control.denial = Denied("invalid", "2 problems", problems)
    with pytest.raises(Unanswered) as unanswered:
        Calls(served.address).call("POST", "/config/reload")
    assert (unanswered.value.code, unanswered.value.message) == ("invalid", "2 problems")
    assert unanswered.value.problems == problems


def test_how_a_change_is_made_travels_in_query_and_field(served: Served) -> None:
    Calls(served.address).call("DELETE", "/instances/i/drain", None, How(True, True, 12))
    assert [(one.wait, one.dry_run, one.revision) for one in served.control.asked] == [
        (True, True, 12)
    ]
    Calls(served.address).call("DELETE", "/instances/i/drain")
    assert served.control.asked[1] == Asked(served.control.asked[0].ask, False, False, None)
