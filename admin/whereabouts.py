"""Where the admin port of the gateway is that the operator means.

Floor 3, I/O.
Said with --admin, or read from the config file beside which the operator stands: only the two keys
that matter, so that a file with a mistake elsewhere does not keep anybody from looking. A run
folder is named from where `sluicegate serve` was started. Nobody here knows where that was: it is
looked for from where the operator stands, then from beside the file.
"""

import tomllib
from pathlib import Path
from typing import Any, Final

import orjson

DEFAULT: Final = "127.0.0.1:9901"  # as in config.toml
RUN_DIR: Final = "var/run"  # as in config.toml
ASK_FOR_IT: Final = "say where the gateway is with --admin HOST:PORT"


class Unclear(Exception):
    """No address can be read; the message is a sentence that says what to do."""


def check_address(address: str) -> str:
    """The address, when it is one.

    Raises: Unclear.
    """
    host, _, port = address.rpartition(":")
    if address.startswith("unix:/") or (host and port.isascii() and port.isdigit()):
        return address
    raise Unclear(f'{address} is neither "host:port" nor "unix:/path"')


def find(config_path: Path, required: bool) -> str:
    """The address in the config file; without a file, unless it is `required`, the default.

    Raises: Unclear.
    """
    try:
        document = tomllib.loads(config_path.read_text())
    except FileNotFoundError:
        if required:
            raise Unclear(f"there is no {config_path}: {ASK_FOR_IT}") from None
        return DEFAULT
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise Unclear(f"{config_path} cannot be read ({exc}): {ASK_FOR_IT}") from None
    address = _key(document, "admin", "listen", DEFAULT)
    if address.endswith(":0"):  # any free port: the running gateway has written down which
        run_dir = _key(document, "gateway", "run_dir", RUN_DIR)
        address = _written_down([Path.cwd() / run_dir, config_path.absolute().parent / run_dir])
    return check_address(address)


def _key(document: dict[str, Any], table: str, key: str, default: str) -> str:
    rows = document.get(table)
    value = rows.get(key, default) if isinstance(rows, dict) else default
    if not isinstance(value, str):
        raise Unclear(f"{table}.{key} in the config is not a string: {ASK_FOR_IT}")
    return value


def _written_down(run_dirs: list[Path]) -> str:
    """What the first of them says that says anything."""
    for run_dir in run_dirs:
        try:
            return str(orjson.loads((run_dir / "gateway.json").read_bytes())["admin"])
        except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
            continue
    looked = " nor ".join(dict.fromkeys(str(one / "gateway.json") for one in run_dirs))
    raise Unclear(f"{looked} names no running gateway: {ASK_FOR_IT}")
