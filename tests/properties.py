"""How many examples hypothesis tries: 5 in the fast tier."""

from hypothesis import settings

FAST = 5


def examples(usual: int) -> settings:
    """Return the settings of a property that needs another number of examples than the others."""
    in_fast_tier = settings.default.max_examples == FAST
    return settings(max_examples=FAST if in_fast_tier else usual)
