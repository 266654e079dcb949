import sys

from gateway.config import parse
from gateway.fleet.commands import Launch
from gateway.launch.local import TOKEN, LocalLauncher, spawn
from gateway.messages import Message
from tests.gateway.fleet.builders import LAUNCHED

ORDER = Launch("m-1-0", "m", "1", "d0")
OWN = LAUNCHED.replace(
    "replicas =", 'command = ["serve", "--port={model}", "{device}", "{unknown}"]\nreplicas ='
)


def options(command: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(command[5::2], command[6::2], strict=True))


def test_the_default_is_sluicegate_instance_on_the_snapshot() -> None:
    order = spawn(ORDER, parse(LAUNCHED), "127.0.0.1:9902", "secret")
    assert order.command[:5] == (sys.executable, "-P", "-m", "gateway.cli", "instance")
    given = options(order.command)
    assert given["--instance-id"] == "m-1-0"
    assert given["--registry"] == "127.0.0.1:9902"
    assert (given["--device"], given["--device-kind"]) == ("d0", "cpu")
    assert given["--life-fd"] == "{instances_life}"
    assert (given["--grace-s"], given["--error-linger-s"]) == ("30", "30")
    assert "--threads" not in given
    assert order.name == "instance.m-1-0"
    assert order.log == "var/log/m-1-0.log"
    assert order.handed_over


def test_the_token_is_in_the_environment_and_nowhere_else() -> None:
    order = spawn(ORDER, parse(LAUNCHED), "127.0.0.1:9902", "secret")
    assert order.environment == {TOKEN: "secret"}
    assert not any("secret" in part for part in order.command)


def test_threads_are_passed_when_the_file_names_them() -> None:
    text = LAUNCHED.replace("replicas =", "threads = 3\nreplicas =")
    assert options(spawn(ORDER, parse(text), "h:1", "t").command)["--threads"] == "3"


def test_a_command_of_ones_own_is_filled_in_and_other_braces_stay() -> None:
    order = spawn(ORDER, parse(OWN), "h:1", "t")
    assert order.command == ("serve", "--port=m", "d0", "{unknown}")


def test_a_launch_is_one_order_to_the_supervisor() -> None:
    told: list[Message] = []
    LocalLauncher(told.append, "h:1").launch(ORDER, parse(LAUNCHED), "t")
    assert told == [spawn(ORDER, parse(LAUNCHED), "h:1", "t")]
