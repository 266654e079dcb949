"""As much of JSON Schema as our OpenAPI document uses, so that answers can be held against it."""

from typing import Any

KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
KNOWN = {
    *("type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "$ref"),
    *("minimum", "maximum", "minLength", "minProperties"),
}


def faults(value: Any, schema: dict[str, Any], root: dict[str, Any], at: str = "") -> list[str]:
    """Where and how the value differs from the schema; a schema keyword unknown here raises."""
    assert set(schema) <= KNOWN, set(schema) - KNOWN
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/components/schemas/")
        return faults(value, root["components"]["schemas"][name], root, at)
    if "anyOf" in schema:
        found = [faults(value, one, root, at) for one in schema["anyOf"]]
        return [] if [] in found else min(found, key=len)
    if "enum" in schema and value not in schema["enum"]:
        return [f"{at}: {value!r} is none of {schema['enum']}"]
    if "type" in schema and not _is(value, schema["type"]):
        return [f"{at}: {value!r} is no {schema['type']}"]
    if isinstance(value, dict):
        return _object(value, schema, root, at)
    if isinstance(value, list):
        items = schema.get("items", {})
        return [f for i, one in enumerate(value) for f in faults(one, items, root, f"{at}[{i}]")]
    if isinstance(value, str) and len(value) < schema.get("minLength", 0):
        return [f"{at}: too short"]
    return []


def _is(value: Any, kinds: str | list[str]) -> bool:
    names = [kinds] if isinstance(kinds, str) else kinds
    if isinstance(value, bool):
        return "boolean" in names
    return any(isinstance(value, KINDS[name]) for name in names)


def _object(
    value: dict[str, Any], schema: dict[str, Any], root: dict[str, Any], at: str
) -> list[str]:
    properties = schema.get("properties", {})
    more = schema.get("additionalProperties", True)
    found = [f"{at}.{key}: is missing" for key in schema.get("required", ()) if key not in value]
    for key, one in value.items():
        if key in properties:
            found += faults(one, properties[key], root, f"{at}.{key}")
        elif more is False:
            found.append(f"{at}.{key}: is not in the schema")
        elif isinstance(more, dict):
            found += faults(one, more, root, f"{at}.{key}")
    return found
