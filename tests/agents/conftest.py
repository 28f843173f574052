"""Every test with a ``runner`` runs synchronously and in an event loop, and so does every one with ``agents``."""

from typing import Any

import pytest
from runnable.conftest import fits, never, runner, runs

__all__ = ["fits", "never", "runner", "runs"]


@pytest.fixture
def agents(runner: Any) -> Any:
    from agents.acting import Agents

    return Agents(runner)
