"""The config of a fronted gateway is one that the gateway takes."""

from pathlib import Path

from gateway.config import parse
from tests.bench.lifecycle_front import Fronted
from tests.bench.serving import INTERPRETED, MODEL, Build, config_text, named
from tests.live.gateways import ROOT


def test_the_config_has_the_addresses_as_instances_of_the_default_model(tmp_path: Path) -> None:
    instances = [Fronted(f"stub-{k}", f"127.0.0.1:{k + 1}", "127.0.0.1:9") for k in range(3)]
    settings = parse(config_text(tmp_path, instances))
    assert settings.gateway.default_model == MODEL
    assert settings.gateway.workers == 1
    assert [one.http for one in settings.instance] == ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]
    assert {one.model for one in settings.instance} == {MODEL}


def test_the_number_of_workers_is_the_config_s(tmp_path: Path) -> None:
    assert parse(config_text(tmp_path, [], 2)).gateway.workers == 2


def test_a_compiled_build_comes_before_the_folder_that_python_is_started_in(tmp_path: Path) -> None:
    build = Build("compiled", tmp_path)
    assert build.environment == {"PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"}
    assert INTERPRETED.environment == {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
    assert named(build) == "Sluicegate (compiled)"
