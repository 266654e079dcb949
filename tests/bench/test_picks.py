"""Every policy can be timed: each pick of the loop finds an instance."""

import os

import pytest

from gateway.records import Policy
from gateway.state.ledger import Ledger
from gateway.state.shared import Layout, Segment, create
from tests.bench.picks import measured


@pytest.mark.parametrize("policy", Policy)
def test_a_pick_of_each_policy_takes_some_time(policy: Policy) -> None:
    fd = create(Layout(4, 16, 2, 64))
    try:
        assert measured(policy, 10, Ledger(Segment(fd), 0)) > 0
    finally:
        os.close(fd)
