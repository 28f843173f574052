"""The two ways to call a runnable, as tests/runnable has them."""

from runnable.conftest import runner

__all__ = ["runner"]
