"""What every test shares: how hard property tests look, and that no timing decides a test."""

import os

from hypothesis import settings

# A shared machine may take any time for one example, so there is no deadline. CI and developers
# look at the same number of examples; `make test-thorough` looks longer.
settings.register_profile("quick", deadline=None, max_examples=40)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
