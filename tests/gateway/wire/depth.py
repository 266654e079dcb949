"""How many examples a property test looks at: a multiple of the profile's number."""

from hypothesis import Phase, settings


def looks(times: float, shrinks: bool = True) -> settings:
    """So many times as many examples as the profile in force says, quick or thorough.

    `shrinks`: a failure is made small, which takes hundreds of runs; not where each may wait.
    """
    phases = [phase for phase in Phase if shrinks or phase not in (Phase.shrink, Phase.explain)]
    return settings(max_examples=int(times * settings().max_examples), deadline=None, phases=phases)
