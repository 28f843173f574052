"""Requests as streams of what the engine says of them."""

from collections.abc import Callable
from functools import partial
from typing import Any

from langchain_core.messages import AIMessage
from langchain_reasc_backend.bridge import AsyncStream, Start, Stream

from langchain_reasc_llama_cpp.engine.engine import Engine
from langchain_reasc_llama_cpp.engine.request import Event, GenerationRequest

__all__ = ["AsyncSampleStream", "MakeRequest", "SampleStream", "Submit", "at_once", "generating"]

SampleStream = Stream[tuple[int, AIMessage]]
"""Samples of one prompt, as ``(index, message)`` in the order they end."""
AsyncSampleStream = AsyncStream[tuple[int, AIMessage]]
"""The same for ``async for``."""
MakeRequest = Callable[[Callable[[Event], None]], GenerationRequest]
"""Makes a request, given where its events go."""
Submit = Callable[[GenerationRequest], Callable[[], None]]
"""Gives a request to the engine, and returns what cancels it, within one decode step."""


def at_once(engine: Engine) -> Submit:
    """What gives a request to the engine as it is."""

    def submit(request: GenerationRequest) -> Callable[[], None]:
        engine.submit(request)
        return partial(engine.cancel, request)

    return submit


def generating(submit: Submit, make_request: MakeRequest) -> Start[Any]:
    """What begins a stream of text and of samples; it raises what submitting raises."""
    return lambda sender: submit(make_request(sender.put))
