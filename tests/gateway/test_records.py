"""The nouns cross a socket unchanged."""

from random import Random

import orjson
from hypothesis import given
from hypothesis import strategies as st

from gateway.records import (
    BLAMES_INSTANCE,
    OUTCOMES_MAX,
    Outcome,
    Route,
    RouteTable,
    decode_table,
)
from tests.gateway.tables import tables


@given(tables())
def test_a_table_that_crossed_is_the_table(table: RouteTable) -> None:
    assert decode_table(orjson.loads(orjson.dumps(table))) == table


@given(tables(), st.randoms())
def test_a_table_reads_the_same_in_any_field_order(table: RouteTable, rng: Random) -> None:
    document = orjson.loads(orjson.dumps(table))
    keys = list(document)
    rng.shuffle(keys)
    assert decode_table({key: document[key] for key in keys}) == table


def test_outcomes_have_room_in_the_segment() -> None:
    assert max(Outcome) < OUTCOMES_MAX


def test_what_the_client_or_the_gateway_did_blames_nobody() -> None:
    innocent = {Outcome.SERVED, Outcome.CLIENT_GONE, Outcome.CUT, Outcome.REFUSED, Outcome.LOST}
    assert set(Outcome) - BLAMES_INSTANCE == innocent


def test_records_are_frozen() -> None:
    assert Route.__dataclass_params__.frozen  # type: ignore[attr-defined]
