import sys

import pytest

from gateway.config import parse
from gateway.fleet.commands import Launch
from gateway.launch.local import TOKEN, LocalLauncher, spawn
from gateway.mains import guard
from gateway.messages import Message, Spawn
from tests.gateway.fleet.builders import LAUNCHED

ORDER = Launch("m-1-0", "m", "1", "d0")
OWN = LAUNCHED.replace(
    "replicas =", 'command = ["serve", "--port={model}", "{device}", "{unknown}"]\nreplicas ='
)


def behind(order: Spawn) -> tuple[str, ...]:
    """The command of the instance itself."""
    assert order.command[:4] == (sys.executable, "-P", "-m", "gateway.mains.guard")
    return order.command[order.command.index("--") + 1 :]


def options(command: tuple[str, ...]) -> dict[str, str]:
    return dict(zip(command[5::2], command[6::2], strict=True))


def test_the_default_is_sluicegate_instance_on_the_snapshot() -> None:
    order = spawn(ORDER, parse(LAUNCHED), "127.0.0.1:9902", "secret")
    assert behind(order)[:5] == (sys.executable, "-P", "-m", "gateway.cli", "instance")
    given = options(behind(order))
    assert given["--instance-id"] == "m-1-0"
    assert given["--registry"] == "127.0.0.1:9902"
    assert (given["--device"], given["--device-kind"]) == ("d0", "cpu")
    assert given["--life-fd"] == "{instances_life}"
    assert (given["--grace-s"], given["--error-linger-s"]) == ("30", "30")
    assert "--threads" not in given
    assert order.name == "instance.m-1-0"
    assert order.handed_over


def test_what_the_recorder_keeps_warms_an_instance_up() -> None:
    def samples(recorder: str) -> str | None:
        text = f"[recorder]\n{recorder}\n{LAUNCHED}"
        given = options(behind(spawn(ORDER, parse(text), "h:1", "t")))
        return given.get("--warmup-samples")

    assert samples('enabled = true\ndir = "kept"') == "kept/m.jsonl"
    assert samples("enabled = false") is None


def test_the_token_is_in_the_environment_and_nowhere_else() -> None:
    order = spawn(ORDER, parse(LAUNCHED), "127.0.0.1:9902", "secret")
    assert order.environment[TOKEN] == "secret"
    assert not any("secret" in part for part in order.command)


def test_what_the_file_says_of_a_load_is_passed_and_nothing_else() -> None:
    wanted = {
        "--threads": "3",
        "--memory-gb": "0.25",
        "--warmup-rounds": "0",
        "--warmup-baseline-ms": "62.5",
        "--load-threads": "2",
        "--load-nice": "19",
    }
    given = options(behind(spawn(ORDER, parse(LAUNCHED), "h:1", "t")))
    assert given.keys() & wanted.keys() == {"--warmup-rounds"}
    assert given["--warmup-rounds"] == "3"
    keys = "threads = 3\nmemory_gb = 0.25\nwarmup_rounds = 0\nwarmup_baseline_ms = 62.5\nreplicas ="
    text = "[launch]\nload_threads = 2\nload_nice = 19\n" + LAUNCHED.replace("replicas =", keys)
    given = options(behind(spawn(ORDER, parse(text), "h:1", "t")))
    assert {name: given[name] for name in wanted} == wanted


def test_reuse_of_prefixes_is_switched_off_when_the_file_says_so() -> None:
    text = LAUNCHED.replace("replicas =", "prefix_reuse = false\nreplicas =")
    assert behind(spawn(ORDER, parse(text), "h:1", "t"))[-1] == "--no-prefix-reuse"
    assert "--no-prefix-reuse" not in behind(spawn(ORDER, parse(LAUNCHED), "h:1", "t"))


def test_a_command_of_ones_own_is_filled_in_and_other_braces_stay() -> None:
    order = spawn(ORDER, parse(OWN), "h:1", "t")
    assert behind(order) == ("serve", "--port=m", "d0", "{unknown}")


def test_every_instance_stands_behind_a_guard_that_writes_its_log() -> None:
    for text in (LAUNCHED, OWN):
        order = spawn(ORDER, parse(text), "h:1", "t")
        numbers = {"{instances_life}": "8", "{said}": "9"}
        given = guard.arguments([numbers.get(part, part) for part in order.command[4:]])
        assert (given.life_fd, given.said_fd, str(given.log)) == (8, 9, "var/log/m-1-0.log")
        assert (given.instance_id, given.model, given.version) == ("m-1-0", "m", "1")
        assert given.log_max_bytes == 16 << 20
        assert len(given.command) == len(behind(order))


@pytest.mark.parametrize(
    ("kind", "index", "seen"),
    [
        ("cpu", 0, {"ASCEND_RT_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": ""}),
        (
            "ascend",
            3,
            {"ASCEND_RT_VISIBLE_DEVICES": "3", "CUDA_VISIBLE_DEVICES": "", "DEVICE_ID": "0"},
        ),
        (
            "gpu",
            2,
            {
                "ASCEND_RT_VISIBLE_DEVICES": "",
                "CUDA_VISIBLE_DEVICES": "2",
                "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            },
        ),
    ],
)
def test_an_instance_sees_its_own_device_and_no_other(
    kind: str, index: int, seen: dict[str, str]
) -> None:
    text = LAUNCHED.replace("memory_gb", f'kind = "{kind}"\nindex = {index}\nmemory_gb')
    assert spawn(ORDER, parse(text), "h:1", "t").environment == {TOKEN: "t", **seen}


def test_the_device_can_be_named_in_a_command_of_ones_own() -> None:
    text = OWN.replace('"{device}"', '"{device_kind}:{device_index}", "{threads}"')
    text = text.replace("memory_gb", 'kind = "ascend"\nindex = 5\nmemory_gb')
    command = behind(spawn(ORDER, parse(text), "h:1", "t"))
    assert command == ("serve", "--port=m", "ascend:5", "0", "{unknown}")


def test_a_launch_is_one_order_to_the_supervisor() -> None:
    told: list[Message] = []
    LocalLauncher(told.append, "h:1").launch(ORDER, parse(LAUNCHED), "t")
    assert told == [spawn(ORDER, parse(LAUNCHED), "h:1", "t")]
