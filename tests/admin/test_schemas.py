from dataclasses import fields

import orjson
import pytest

from admin import views
from admin.schemas import NAMES, schemas
from gateway.control import DrainView, InstanceView
from tests.admin.fakes import DRAIN, INSTANCE, LOADING
from tests.admin.schema import faults

ROOT = {"components": {"schemas": schemas()}}


def _faults(name: str, document: views.Document) -> list[str]:
    value = orjson.loads(orjson.dumps(document))
    return faults(value, ROOT["components"]["schemas"][name], ROOT)


@pytest.mark.parametrize("kind", NAMES, ids=NAMES.values())
def test_a_view_has_each_of_its_fields_in_its_schema(kind: type) -> None:
    schema = schemas()[NAMES[kind]]
    names = [one.name for one in fields(kind)]
    assert list(schema["properties"]) == schema["required"] == names
    assert schema["additionalProperties"] is False


def test_what_is_not_known_may_be_null_and_nothing_else_may() -> None:
    assert _faults("Instance", views.instance(INSTANCE)) == []
    assert _faults("Instance", views.instance(LOADING)) == []
    assert _faults("Instance", {**views.instance(INSTANCE), "weight": None}) != []
    assert _faults("Drain", {**views.drain(DRAIN), "ended": 1.0}) == []
    assert _faults("Drain", {**views.drain(DRAIN), "held": None}) != []


def test_a_key_too_many_or_too_few_is_a_fault() -> None:
    assert _faults("Drain", {**views.drain(DRAIN), "colour": 1}) != []
    short = views.drain(DRAIN)
    del short["held"]
    assert _faults("Drain", short) == [".held: is missing"]


def test_a_view_inside_another_is_a_reference() -> None:
    assert NAMES[InstanceView] in schemas()
    assert schemas()["Status"]["properties"]["models"]["items"] == {
        "$ref": "#/components/schemas/Model"
    }
    lost = schemas()[NAMES[DrainView]]["properties"]["lost"]["items"]
    assert lost["properties"]["cause"] == {"type": "string"}
