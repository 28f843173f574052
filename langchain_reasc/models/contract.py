"""What our own backends and the core agree on, besides LangChain's ``BaseChatModel``.

A response is an ``AIMessage``. Its ``response_metadata`` may carry the names below; whatever else is known of it comes
in LangChain's own places, or in the provider's ``logprobs`` (:mod:`langchain_reasc.models.logprobs`).
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable
from uuid import UUID, uuid4

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.utils.utils import LC_ID_PREFIX

__all__ = ["FailedSample", "ParallelSampler", "SampleStream", "sample_id"]


def sample_id(run: UUID | None = None) -> str:
    """The id of a sample's message that its provider did not name: after its run, as LangChain does, or a new one."""
    return f"{LC_ID_PREFIX}-{run or uuid4()}"


class FailedSample(NamedTuple):
    """What a parallel sampler hands over in place of a message when one sample failed and the others go on.

    Attributes:
        error: why.
        message: what had been generated, and is paid for; None where nothing was.
    """

    error: Exception
    message: AIMessage | None = None


class SampleStream(Protocol):
    """What a parallel sampler returns: ended samples in order of completion, and a way to stop.

    An exception out of the iterator fails all samples that have not come out.
    """

    def __iter__(self) -> Iterator[tuple[int, AIMessage | FailedSample]]:
        """(index, message) of each sample, from synchronous code."""
        ...

    def __aiter__(self) -> AsyncIterator[tuple[int, AIMessage | FailedSample]]:
        """The same from asynchronous code."""
        ...

    def cancel(self) -> None:
        """Take live sequences out; they still come out of the iterator, with ``finish_reason="cancelled"``."""

    def close(self) -> None:
        """Cancel, and drop what was not handed over."""


@runtime_checkable
class ParallelSampler(Protocol):
    """A chat model that decodes several samples of one prompt together, as our llama.cpp model does."""

    def sample(self, messages: list[BaseMessage], *, n: int, first: int = 0, **kwargs: Any) -> SampleStream:
        """Start samples ``first`` to ``first + n - 1``; sample i uses the model's seed + i."""
        ...

    def asample(self, messages: list[BaseMessage], *, n: int, first: int = 0, **kwargs: Any) -> SampleStream:
        """The same, iterated with ``async for``."""
        ...
