"""Every test with a ``runner`` runs synchronously and in an event loop."""

import asyncio
from typing import Any

import pytest


class Runner:
    def solve(self, runnable: Any, *args: Any, **kwargs: Any) -> Any:
        return runnable.solve(*args, **kwargs)


class AsyncRunner:
    """Without the count of tasks left behind: several clients leave it to the loop to close their generators."""

    def solve(self, runnable: Any, *args: Any, **kwargs: Any) -> Any:
        return asyncio.run(runnable.asolve(*args, **kwargs))


@pytest.fixture(params=[Runner, AsyncRunner], ids=["sync", "async"])
def runner(request: pytest.FixtureRequest) -> Any:
    return request.param()
