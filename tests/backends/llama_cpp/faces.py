"""The sync and the async methods of a chat model behind one set of names, and what tests read off it."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import LLMResult
from langchain_reasc_llama_cpp import ChatLlamaCpp

Samples = list[tuple[int, AIMessage]]


class SyncFace:
    is_async = False

    def invoke(self, model: Any, given: Any, **options: Any) -> AIMessage:
        return model.invoke(given, **options)

    def batch(self, model: Any, given: list[Any], **options: Any) -> list[AIMessage]:
        return model.batch(given, **options)

    def stream(self, model: Any, given: Any, **options: Any) -> list[AIMessageChunk]:
        return list(model.stream(given, **options))

    def generate(self, model: ChatLlamaCpp, given: list[Any], **options: Any) -> LLMResult:
        return model.generate(given, **options)

    def sample(self, model: ChatLlamaCpp, given: Any, *, cancel_after: int = -1, **options: Any) -> Samples:
        got: Samples = []
        with model.sample(given, **options) as samples:
            for pair in samples:
                got.append(pair)
                if len(got) == cancel_after:
                    samples.cancel()
        return got


class AsyncFace:
    is_async = True

    def invoke(self, model: Any, given: Any, **options: Any) -> AIMessage:
        return asyncio.run(model.ainvoke(given, **options))

    def batch(self, model: Any, given: list[Any], **options: Any) -> list[AIMessage]:
        return asyncio.run(model.abatch(given, **options))

    def stream(self, model: Any, given: Any, **options: Any) -> list[AIMessageChunk]:
        async def collect() -> list[AIMessageChunk]:
            return [chunk async for chunk in model.astream(given, **options)]

        return asyncio.run(collect())

    def generate(self, model: ChatLlamaCpp, given: list[Any], **options: Any) -> LLMResult:
        return asyncio.run(model.agenerate(given, **options))

    def sample(self, model: ChatLlamaCpp, given: Any, *, cancel_after: int = -1, **options: Any) -> Samples:
        async def collect() -> Samples:
            got: Samples = []
            async with model.asample(given, **options) as samples:
                async for pair in samples:
                    got.append(pair)
                    if len(got) == cancel_after:
                        samples.cancel()
            return got

        return asyncio.run(collect())


Face = SyncFace | AsyncFace


def merged(chunks: Iterable[AIMessageChunk]) -> AIMessageChunk:
    """The chunks of a stream, added up."""
    first, *rest = chunks
    for chunk in rest:
        first = first + chunk
    return first


def input_tokens(message: AIMessage) -> int:
    assert message.usage_metadata is not None
    return message.usage_metadata["input_tokens"]


def output_tokens(message: AIMessage) -> int:
    assert message.usage_metadata is not None
    return message.usage_metadata["output_tokens"]


def cache_read(message: AIMessage) -> int:
    assert message.usage_metadata is not None
    return message.usage_metadata["input_token_details"]["cache_read"]


def texts(samples: list[tuple[int, AIMessage]]) -> dict[int, str]:
    return {index: str(message.content) for index, message in samples}


def wait_until(holds: Callable[[], object], seconds: float = 60) -> None:
    """Return once something holds, or after so many seconds."""
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.001)


def wait_until_decoding(model: ChatLlamaCpp) -> None:
    """Return once the engine has made two steps more, of which one may have been for a prompt."""
    context = model.engine.context
    before = context.steps
    wait_until(lambda: context.steps >= before + 2, 20)


def resident() -> int:
    """Bytes of this process in main memory, where they are read from /proc."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def printed(script: str, *arguments: object) -> str:
    """What a script prints in a process of its own, which ends well and complains of nothing."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
