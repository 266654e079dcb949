"""The config of a fronted gateway is one that the gateway takes."""

from pathlib import Path

from gateway.config import parse
from tests.bench.lifecycle_front import Fronted
from tests.bench.serving import MODEL, config_text


def test_the_config_has_the_addresses_as_instances_of_the_default_model(tmp_path: Path) -> None:
    instances = [Fronted(f"stub-{k}", f"127.0.0.1:{k + 1}", "127.0.0.1:9") for k in range(3)]
    settings = parse(config_text(tmp_path, instances))
    assert settings.gateway.default_model == MODEL
    assert settings.gateway.workers == 1
    assert [one.http for one in settings.instance] == ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]
    assert {one.model for one in settings.instance} == {MODEL}
