"""A chat model that loses a cancellation, as ``asyncio.wait_for`` inside ChatOpenAI does on Python 3.11."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk

from langchain_reasc import ReASCRunnable
from langchain_reasc.exceptions import SampleTimeout

from .fakes import Reply, Scripted


class Deaf(Scripted):
    """Sample 4 goes on for half a minute, and does not hear that it is cancelled."""

    async def _astream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        if self._begin(messages)[1][1] != 4:
            async for chunk in super()._astream(messages, *args, **kwargs):
                yield chunk
            return
        ends = time.monotonic() + 30
        while time.monotonic() < ends:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.001)
            yield ChatGenerationChunk(message=AIMessageChunk(content="and so on"))


def solved(**options: Any) -> Any:
    deaf = Deaf(script=lambda question, index: Reply("it is 42"))
    return asyncio.run(ReASCRunnable(model=deaf, **options).asolve("q"))


def test_the_decision_ends_the_sample_all_the_same() -> None:
    result = solved(concurrency=5)
    assert (result.answer, result.decision.samples, result.responses[4].status) == ("42", 4, "cancelled")


def test_its_time_limit_ends_it_all_the_same() -> None:
    result = solved(concurrency=5, sample_timeout=0.2, confidence=0.97)  # five agreeing answers
    assert (result.answer, result.decision.samples) == ("42", 5)
    assert isinstance(result.responses[4].error, SampleTimeout)
