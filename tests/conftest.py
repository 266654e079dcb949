"""What every test shares: how hard property tests look, and what may not decide a test."""

import logging
import os
from collections.abc import Iterator
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

# A shared machine may take any time for one example, so there is no deadline, and no verdict on
# speed. The quick profile draws the same examples each time: what it finds belongs to the change
# that it is run on. `HYPOTHESIS_PROFILE=thorough` looks longer, and elsewhere every time.
SLOW: Final = (HealthCheck.too_slow,)
settings.register_profile(
    "quick", deadline=None, max_examples=40, derandomize=True, suppress_health_check=SLOW
)
settings.register_profile("thorough", deadline=None, max_examples=1000, suppress_health_check=SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

OURS: Final = {"gateway", "backends", "admin", "sluicegate"}


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """What our own code logs: asyncio complains at any moment of what earlier tests have left."""

    def is_ours(record: logging.LogRecord) -> bool:
        return record.name.partition(".")[0] in OURS

    caplog.handler.addFilter(is_ours)
    yield caplog
    caplog.handler.removeFilter(is_ours)
