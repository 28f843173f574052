"""Samples whose requests are made ready in the background, once somebody iterates over them."""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from langchain_core.messages import AIMessage

from langchain_reasc.source import FailedSample
from langchain_reasc_openai.drawing.sample_streams import AsyncSampleStream

__all__ = ["PreparedSamples"]


class PreparedSamples:
    """An :class:`~langchain_reasc_openai.drawing.sample_streams.AsyncSampleStream` that begins with its first step."""

    def __init__(self, begin: Callable[[], Awaitable[AsyncSampleStream]]) -> None:
        self._begin = begin
        self._stream: AsyncSampleStream | None = None
        self._ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[int, AIMessage | FailedSample]:
        """The next sample to end."""
        if self._stream is None and not self._ended:
            stream = await self._begin()
            if self._ended:  # cancelled while the servers were asked what they support
                stream.close()
            self._stream = stream
        if self._stream is None:
            raise StopAsyncIteration
        return await anext(self._stream)

    def cancel(self) -> None:
        """Cut off what runs; what was begun still comes out."""
        if self._stream is None:
            self._ended = True
        else:
            self._stream.cancel()

    def close(self) -> None:
        """Cut off what runs, and end the iteration."""
        self._ended = True
        if self._stream is not None:
            self._stream.close()

    async def aclose(self) -> None:
        """As :meth:`close`."""
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
