"""How many examples a property test looks at: a multiple of the profile's number."""

from hypothesis import settings


def looks(times: float) -> settings:
    """So many times as many examples as the profile in force says, quick or thorough."""
    return settings(max_examples=int(times * settings().max_examples), deadline=None)
