"""Moments of requests, as the instance and the caller see them."""

import asyncio

from tests.bench.lifecycle_load import calling, instance


async def test_what_callers_ask_comes_and_ends_with_them() -> None:
    async with instance() as (address, arrivals):
        began = asyncio.get_running_loop().time()
        async with calling(address, "m", callers=1):
            first = await arrivals.next()
            second = await arrivals.next()
        assert began <= first < second == arrivals.last
