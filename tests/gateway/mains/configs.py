"""Configs for gateways in tests: every port free, every file inside one folder."""

from pathlib import Path


def quiet_config(folder: Path, **addresses: str) -> str:
    """No models; `addresses` by config key, where a test needs a certain one."""
    listen = addresses.get("gateway.listen", "127.0.0.1:0")
    admin = addresses.get("admin.listen", "127.0.0.1:0")
    registry = addresses.get("registry.listen", "127.0.0.1:0")
    return f"""
[gateway]
listen = ["{listen}"]
run_dir = "{folder}/run"
log_dir = "{folder}/log"
[admin]
listen = "{admin}"
[registry]
listen = "{registry}"
[store]
url = "sqlite:{folder}/sluicegate.db"
[repository]
root = "{folder}/models"
cache = "{folder}/cache"
"""
