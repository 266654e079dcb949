"""Where a gateway's config.toml names a version of a repository.

Floor 1, pure.
A version that runs is held by its instance. One that is named and does not run just now is in use
all the same: the next start of its group would not find it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from backends.snapshots.roots import Root, read_root

ROOT: Final = "var/models"  # of the gateway, where its config names none


def uses(config: Mapping[str, Any], model: str, version: str) -> list[str]:
    """The keys under which it is named; what is no config of a gateway names nothing."""
    found: list[str] = []
    for table in _tables(config, "model"):
        if table.get("name") == model:
            found += [
                f"[[model]] {key}" for key in ("weights", "replicas") if _has(table, key, version)
            ]
    for table in _tables(config, "instance"):
        if (table.get("model"), table.get("version")) == (model, version):
            found.append(f"[[instance]] {table.get('id', '')}".rstrip())
    return found


def root_of(config: Mapping[str, Any]) -> Root:
    """The model repository that the config is about."""
    repository = config.get("repository")
    root = repository.get("root", ROOT) if isinstance(repository, dict) else ROOT
    return read_root(str(root))


def _tables(config: Mapping[str, Any], key: str) -> Iterator[Mapping[str, Any]]:
    entries = config.get(key)
    yield from (
        entry for entry in (entries if isinstance(entries, list) else ()) if isinstance(entry, dict)
    )


def _has(table: Mapping[str, Any], key: str, version: str) -> bool:
    named = table.get(key)
    return isinstance(named, dict) and version in named
