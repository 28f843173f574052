"""Every test with a ``runner`` runs synchronously and in an event loop."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from runnable import conftest


class AsyncRunner(conftest.AsyncRunner):
    """Without the count of tasks left behind: several clients leave it to the loop to close their generators."""

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run(main)


@pytest.fixture(params=[conftest.Runner, AsyncRunner], ids=["sync", "async"])
def runner(request: pytest.FixtureRequest) -> Any:
    return request.param()
