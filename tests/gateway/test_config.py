"""config.toml: everything wrong is said at once, with its path; the file documents every key."""

import re
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from gateway.config import (
    FIXED,
    ConfigInvalid,
    Device,
    Instance,
    Model,
    Problem,
    Rollout,
    Settings,
    Step,
    Webhook,
    changed,
    is_address,
    parse,
    unchangeable,
)

ROOT = Path(__file__).parents[2]
MODEL = '[[model]]\nname = "m"\nweights = { "1" = 100 }\n'


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigInvalid) as caught:
        parse(text)
    return [str(problem) for problem in caught.value.problems]


def test_an_empty_file_is_every_default() -> None:
    assert parse("") == Settings()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[gateway]\ntimout = 5", "gateway.timout: is not a key that config.toml knows"),
        ("[timeouts]\nidle_s = '5'", 'timeouts.idle_s: must be a number, not "5"'),
        ("[timeouts]\nidle_s = -1", "timeouts.idle_s: must be at least 0.0, not -1"),
        ("[timeouts]\nidle_s = nan", "timeouts.idle_s: must be a finite number, not nan"),
        ("[timeouts]\nidle_s = 5000000", "timeouts.idle_s: must be at most 604800.0, not 5000000"),
        ("[gateway]\nworkers = 1.5", "gateway.workers: must be a whole number, not 1.5"),
        ("[gateway]\nworkers = true", "gateway.workers: must be a whole number, not true"),
        ("[gateway]\nlisten = '0:1'", 'gateway.listen: must be a list in brackets, not "0:1"'),
        (
            "[gateway]\nlisten = ['localhost:80']",
            'gateway.listen[0]: must be "ip:port" or "unix:/path", not "localhost:80"',
        ),
        (
            "[gateway]\nlisten = ['127.0.0.1:70000']",
            'gateway.listen[0]: must be "ip:port" or "unix:/path", not "127.0.0.1:70000"',
        ),
        ("[gateway]\nlisten = []", "gateway.listen: must have at least 1 entry"),
        (
            "[admin]\nlisten = '0.0.0.0:9901'",
            "admin.listen: must be a loopback address: this version has no access control",
        ),
        ("[store]\nurl = 'etcd:x'", 'store.url: must be "sqlite:PATH", not "etcd:x"'),
        (
            "[[model]]\nname = 'a/b'\nweights = { '1' = 1 }",
            "model[0].name: must be letters, digits",
        ),
        ("[[model]]\nname = 'a'\nweights = { }", "model[0].weights: must have at least 1 entry"),
        ("[[model]]\nname = 'a'", "model[0].weights: is missing and has no default"),
        (
            "[[model]]\nname = 'a'\nweights = { '../x' = 1 }",
            "model[0].weights.../x: must be letters, digits",
        ),
        (
            "[[model]]\nname = 'a'\nweights = { '1' = -1 }",
            "model[0].weights.1: must be at least 0.0, not -1",
        ),
        (
            "[[model]]\nname = 'a'\nweights = { '1' = 1 }\npolicy = 'best'",
            "model[0].policy: must be 'least_loaded', 'round_robin', 'random' or 'affinity'",
        ),
        (MODEL + MODEL, 'model[1].name: must be unique, not "m", which model[0] has already'),
        (
            MODEL + 'replicas = { "1" = 1 }',
            "model[0].replicas: needs a [[device]] to start instances on",
        ),
        (
            MODEL + 'replicas = { "2" = 0 }',
            "model[0].replicas.2: must be a version with a weight",
        ),
        (MODEL + "device = 'npu'", 'model[0].device: must name a [[device]], not "npu"'),
        (
            "[gateway]\ndefault_model = 'x'",
            'gateway.default_model: must name a [[model]], not "x"',
        ),
        (
            MODEL + "[[instance]]\nid='a'\nmodel='m'\nversion='2'\nhttp='h:1'\ngrpc='h:2'",
            "instance[0].version: must be a version that [[model]] weights name",
        ),
        (
            "[[instance]]\nid='a'\nmodel='m'\nversion='2'\nhttp='h'\ngrpc='h:2'",
            'instance[0].http: must be "host:port", not "h"',
        ),
        ("[gateway", "not TOML: "),
    ],
)
def test_a_mistake_is_named_with_its_path_and_rule(text: str, problem: str) -> None:
    (found,) = problems(text)
    assert found.startswith(problem)


ADDRESSES = {
    "h:1": True,
    "_h.a-b.c.:65535": True,
    f"{'a' * 63}.{'b' * 63}:1": True,
    "[::1]:1": True,
    "[fe80::1%eth0]:1": True,
    "127.0.0.1:0": False,
    "h:65536": False,
    "h": False,
    ":1": False,
    "-h:1": False,
    ".h:1": False,
    "a..b:1": False,
    "a..:1": False,
    f"{'a' * 64}:1": False,
    f"a.{'b' * 64}.c:1": False,
    f"{'a.' * 126}aa:1": False,
}


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_is_one_that_a_resolver_can_be_asked_for(address: str) -> None:
    """Empty and long labels were taken for one; the resolver raises no OSError for them, and the
    instance's poll ended without a word."""
    assert is_address(address) == ADDRESSES[address]
    if is_address(address):
        address.rpartition(":")[0].encode("idna")


def test_all_mistakes_are_told_at_once() -> None:
    text = "[gateway]\nworkers = -1\ntimout = 1\n[poll]\nfailures = 0\n[[device]]\nname = 'a'\n"
    assert [problem.partition(":")[0] for problem in problems(text)] == [
        "gateway.workers",
        "gateway.timout",
        "poll.failures",
        "device[0].memory_gb",
    ]


@given(st.text())
def test_no_text_does_anything_but_parse_or_be_refused(text: str) -> None:
    with suppress(ConfigInvalid):
        assert parse(text)


# --- comparing -----------------------------------------------------------------------------------


def test_a_change_is_named_by_the_table_it_is_in_wherever_that_stands() -> None:
    other = '[[model]]\nname = "n"\nweights = { "1" = 1 }\n'
    moved = MODEL.replace("100", "50")
    assert changed(parse(MODEL + other), parse(other + moved)) == ("model.m.weights.1",)


def test_nothing_changed_is_nothing() -> None:
    assert changed(parse(MODEL), parse(MODEL)) == ()


def test_what_cannot_change_live_is_refused_by_name() -> None:
    new = parse("[gateway]\nworkers = 2\n[timeouts]\nidle_s = 1")
    assert [problem.path for problem in unchangeable(parse(""), new)] == ["gateway.workers"]


def test_a_fixed_key_is_a_key() -> None:
    flat = {f"{table}.{key}" for table, key in _keys(tomllib.loads(_config()))}
    assert set(FIXED) <= flat


def test_a_problem_without_a_path_is_its_message() -> None:
    assert str(Problem("", "not TOML")) == "not TOML"


# --- the file documents itself -------------------------------------------------------------------


def _config() -> str:
    return (ROOT / "config.toml").read_text()


def _keys(document: dict[str, dict[str, object]]) -> set[tuple[str, str]]:
    return {(t, k) for t, keys in document.items() if isinstance(keys, dict) for k in keys}


def test_config_toml_says_every_key_of_the_tables_at_its_default() -> None:
    parsed, default = parse(_config()), Settings()
    for name, field in Settings.model_fields.items():
        if isinstance(getattr(default, name), BaseModel):
            assert getattr(parsed, name) == getattr(default, name), name
            written = tomllib.loads(_config())[name]
            assert set(written) == set(type(getattr(default, name)).model_fields), name
        else:
            assert name in ("device", "model", "instance", "webhook"), field


@pytest.mark.parametrize(
    ("table", "kind"),
    [("device", Device), ("model", Model), ("instance", Instance), ("webhook", Webhook)],
)
def test_config_toml_says_every_key_of_the_lists(table: str, kind: type[BaseModel]) -> None:
    block = re.split(rf"^(?:# )?\[\[{table}\]\].*$", _config(), flags=re.MULTILINE)[1]
    block = re.split(r"^(?:# )?\[", block, flags=re.MULTILINE)[0]
    written = set(re.findall(r"^(?:# )?(\w+) = ", block, re.MULTILINE))
    assert written == set(kind.model_fields) - {"rollout"}


def test_config_toml_says_every_key_of_a_rollout_at_its_default() -> None:
    written = tomllib.loads(_config())["model"][0]["rollout"]
    assert set(written) == set(Rollout.model_fields)
    assert set(written["validation"]) == set(type(Rollout().validation).model_fields)
    assert all(set(step) == set(Step.model_fields) for step in written["steps"])
    assert parse(_config()).model[0].rollout == Rollout()


def test_the_steps_of_a_rollout_rise_and_end_at_all_traffic_at_most() -> None:
    text = "[[model]]\nname = 'm'\nweights = { '1' = 1 }\n[model.rollout]\nsteps = [%s]"
    for steps, problem in (
        ("", "model[0].rollout.steps: must have at least 1 entry"),
        ("{ weight = 101 }", "model[0].rollout.steps[0].weight: must be at most 100.0, not 101"),
        (
            "{ weight = 25 }, { weight = 5 }",
            "model[0].rollout.steps[1].weight: must be more than 25, which the step before has",
        ),
        ("{ weight = 5, hold = 3 }", "model[0].rollout.steps[0].hold: is not a key"),
    ):
        with pytest.raises(ConfigInvalid) as caught:
            parse(text % steps)
        assert str(caught.value).startswith(problem)
    before = parse(text % "{ weight = 5 }")
    after = parse(text % "{ weight = 5, hold_s = 1 }")
    assert changed(before, after) == ("model.m.rollout.steps",)


def test_config_toml_explains_every_key() -> None:
    lines = [line for line in _config().splitlines() if re.match(r"(# )?\w+ = ", line)]
    names = ("ttl", "id =", "name =", "model =", "version =", "restart_max_s", "memory_gb")
    bare = [line for line in lines if line.removeprefix("# ").count("#") == 0]
    assert [line for line in bare if not line.removeprefix("# ").startswith(names)] == []


def test_two_accelerators_of_a_kind_are_two_and_cpus_have_no_number() -> None:
    device = '[[device]]\nname = "d{n}"\nkind = "{kind}"\nindex = 1\nmemory_gb = 1\n'
    two = "".join(device.format(n=n, kind="ascend") for n in range(2))
    with pytest.raises(ConfigInvalid) as caught:
        parse(two)
    assert [str(problem) for problem in caught.value.problems] == [
        "device[1].index: must be unique, not 1, which device[0] has already (line 9)"
    ]
    parse(two.replace("ascend", "cpu"))
    parse(two.replace("ascend", "gpu", 1))


DEVICE = '[[device]]\nname = "d"\nmemory_gb = 1\n'


def model_of(name: str, version: str, count: int = 1) -> str:
    return (
        f'[[model]]\nname = "{name}"\nweights = {{ "{version}" = 1 }}\n'
        f'replicas = {{ "{version}" = {count} }}\n'
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            model_of("a", "b-1") + model_of("a-b", "1"),
            'model[1].replicas.1: must not start "a-b-1-0" again, which model[0].replicas.b-1',
        ),
        (
            model_of("m", "1")
            + '[[instance]]\nid = "m-1-0"\nmodel = "m"\nversion = "1"\n'
            + 'http = "h:1"\ngrpc = "h:2"\n',
            'instance[0].id: must not be "m-1-0", which model[0].replicas.1 starts',
        ),
        (
            model_of("m" * 100, "1" * 27),
            f"model[0].replicas.{'1' * 27}: must make ids of at most 128 characters",
        ),
        (
            model_of("m", "1", 600) + model_of("n", "1", 401),
            "model: must ask for at most 1000 instances, with those of [[instance]], not 1001",
        ),
    ],
)
def test_ids_of_launched_instances_are_one_instances_each_and_can_register(
    text: str, told: str
) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse(DEVICE + text)
    (problem,) = caught.value.problems
    assert str(problem).startswith(told)
    assert problem.line or problem.path == "model"


def test_a_webhook_s_url_is_one_that_says_no_secret_in_a_problem() -> None:
    text = "[[webhook]]\nname = 'a'\nurl = '%s'\n"
    for url in ("hooks.example.org", "ftp://h/x", "http://", "https://u:tok3n@h/", "http://h:x/",
                "http://h/a b", "http://h:0/"):  # fmt: skip
        with pytest.raises(ConfigInvalid) as caught:
            parse(text % url)
        rule = "must be an http:// or https:// URL without user and password"
        assert str(caught.value) == f"webhook[0].url: {rule} (line 3)"
    for url in ("http://127.0.0.1:9/x?y=1", "https://hooks.example.org", "http://[::1]:80/"):
        assert parse(text % url).webhook[0].url == url


def test_a_webhook_has_one_name_and_one_secret() -> None:
    one = "[[webhook]]\nname = 'a'\nurl = 'http://h/'\n"
    with pytest.raises(ConfigInvalid, match=r"webhook\[1\].name: must be unique"):
        parse(one + one)
    with pytest.raises(ConfigInvalid, match=r"webhook\[0\].secret_file: must be left out"):
        parse(one + "secret_env = 'A'\nsecret_file = 'b'\n")
    with pytest.raises(ConfigInvalid, match=r"webhook\[0\].events"):
        parse(one + "events = ['rollouts']\n")
