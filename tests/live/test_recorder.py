"""Samples of requests, through real processes: switched on while the gateway runs."""

from pathlib import Path

import orjson
import pytest

from tests.live.clients import ask
from tests.live.gateways import config, running, scripted_model
from tests.live.scripted_instance import write_snapshot

pytestmark = pytest.mark.live

SECRET = "what a client says"


async def test_a_reload_begins_to_keep_samples_and_the_next_one_ends_it(tmp_path: Path) -> None:
    write_snapshot(tmp_path / "models", "m", "1")
    plain = config(tmp_path, scripted_model("m", {"1": 100}))
    folder = tmp_path / "samples"
    file = folder / "m.jsonl"

    def recorder(enabled: str) -> str:
        return plain + f'\n[recorder]\nenabled = {enabled}\nratio = 1.0\ndir = "{folder}"\n'

    async with running(tmp_path, recorder("false")) as gateway:
        await gateway.ready("m-1-0")
        await gateway.routes("m", {"1": 100})
        assert (await ask(gateway, "m", stream=False)).whole
        (tmp_path / "config.toml").write_text(recorder("true"))
        assert (await gateway.command("reload"))[0] == 0
        await gateway.routes("m", {"1": 100})
        assert not folder.exists()
        messages = [{"role": "user", "content": SECRET}]
        answer = await ask(gateway, "m", stream=False, messages=messages, user=SECRET)
        assert answer.whole
        await gateway.says(lambda text: text == "samples of requests are kept")
        (sample,) = [orjson.loads(line) for line in file.read_bytes().splitlines()]
        assert sample.keys() == {"at", "model", "path", "bucket", "redacted", "body"}
        assert (sample["model"], sample["path"]) == ("m", "/v1/chat/completions")
        assert sample["bucket"] == "<100"
        assert SECRET not in file.read_text()
        (message,) = sample["body"]["messages"]
        assert (message["role"], len(message["content"])) == ("user", len(SECRET))
        assert file.stat().st_mode & 0o777 == 0o600
        async with gateway.http.get(f"{gateway.admin}/metrics") as response:
            page = await response.text()
        row = 'sluicegate_recorded_samples_total{bucket="<100",model="m"} 1.0'
        assert row in page.splitlines()
        (tmp_path / "config.toml").write_text(recorder("false"))
        assert (await gateway.command("reload"))[0] == 0
        await gateway.routes("m", {"1": 100})
        kept = file.read_bytes()
        assert (await ask(gateway, "m", stream=False)).whole
        # It is kept, but gets no more. Replayed by hand, its body is a request like any other:
        answer = await ask(gateway, **sample["body"])
        assert answer.whole
        assert await gateway.end() == 0
        assert file.read_bytes() == kept
