"""Every setting in force, and where it comes from.

Floor 1, pure.
A key is the file's when the file spells it, the default otherwise, and run-time where an operator's
weight stands above both. A drain is no key of the file, and stands beside: `instance.a.intent`.
"""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from gateway.config import Step
from gateway.config_tables import Webhook
from gateway.config_values import masked
from gateway.fleet.snapshot import FleetSnapshot
from gateway.records import Intent


def origins(fleet: FleetSnapshot) -> dict[str, Any]:
    """Dotted key: value and origin; tables in lists by their name: `model.m.limit`."""
    found = {
        path: {"value": value, "origin": origin} for path, value, origin in _walk(fleet.settings)
    }
    for model in fleet.settings.model:
        for version, share in fleet.weights(model.name).items():
            if share.overridden:
                key = f"model.{model.name}.weights.{version}"
                found[key] = {"value": share.weight, "origin": "run-time"}
    for seen in fleet.instances.values():
        weight = fleet.weight_of(seen)
        if weight != seen.weight:
            found[f"instance.{seen.name}.weight"] = {"value": weight, "origin": "run-time"}
        if seen.intent is not Intent.ACTIVE:
            found[f"instance.{seen.name}.intent"] = {
                "value": seen.intent.value,
                "origin": "file" if seen.retired else "run-time",
            }
    return found


def _walk(table: BaseModel, path: str = "") -> Iterator[tuple[str, Any, str]]:
    for name in type(table).model_fields:
        value = getattr(table, name)
        origin = "file" if name in table.model_fields_set else "default"
        key = f"{path}{name}"
        if isinstance(value, BaseModel):
            yield from _walk(value, f"{key}.")
        elif isinstance(value, tuple) and value and isinstance(value[0], Step):
            yield key, [row.model_dump() for row in value], origin
        elif isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
            for row in value:
                row = _shown(row)
                title = getattr(row, "name", None) or getattr(row, "id", "")
                yield from _walk(row, f"{key}.{title}.")
        elif isinstance(value, dict):
            for one, said in value.items():
                yield f"{key}.{one}", said, origin
        else:
            yield key, list(value) if isinstance(value, tuple) else value, origin


def _shown(row: BaseModel) -> BaseModel:
    """The path of a webhook's URL may be all that keeps others from posting there."""
    if isinstance(row, Webhook):
        return row.model_copy(update={"url": masked(row.url)})
    return row
