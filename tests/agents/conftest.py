"""Every test with a ``runner`` runs synchronously and in an event loop, and so does every one with ``agents``."""

from typing import Any

import pytest
from runnable.conftest import never, runner

__all__ = ["never", "runner"]


@pytest.fixture
def agents(runner: Any) -> Any:
    from agents.acting import Agents

    return Agents(runner)
