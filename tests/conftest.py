"""Settings for every test: how hypothesis looks for counterexamples."""

from hypothesis import settings

# No deadline (machines are shared) and no example database (a test run leaves nothing behind).
settings.register_profile("reasc", deadline=None, database=None, max_examples=100, print_blob=True)
settings.load_profile("reasc")
