"""The protocol between our backends and the core, beyond LangChain's ``BaseChatModel``.

A response is an ``AIMessage``. Its ``response_metadata`` may carry the names below;
whatever else is known of it comes in LangChain's own places, or in the provider's
``logprobs`` (:mod:`langchain_reasc.models.signal_reading`).
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable
from uuid import UUID, uuid4

from langchain_core.messages import AIMessage, BaseMessage

from langchain_reasc.langchain_internals import id_of_run

TOKEN_SIGNALS: Final = "token_signals"
"""Signal name -> one float per generated token, as a model in this process computes
them from its own logits.
"""

TOKEN_SIGNALS_INFO: Final = "token_signals_info"
"""What the token signals are made of: ``top_k`` (k) and ``vocabulary_size`` (V)."""

GENERATED_TEXT: Final = "generated_text"
"""What the tokens of a response spell, its calls of tools included: ``text``, and
``sizes``, how many of its bytes (UTF-8) each token is, as many as there are values in
:data:`TOKEN_SIGNALS`.
"""

VERBALIZED_CONFIDENCE: Final = "verbalized_confidence"
"""The confidence that the model stated of its response, 0 to 1, if it was asked to;
None if it stated none.
"""

FINISH_REASON: Final = "finish_reason"
"""Why the response ended, in the provider's word; :data:`CANCELLED` if we cut it off.
"""

CANCELLED: Final = "cancelled"
"""The finish reason of a response that was cut off once the rest of it was not needed.
"""

LOGPROBS_REFUSED: Final = "logprobs_refused"
"""Why the server refused logprobs, in its words; the response was then requested
without them.
"""

RECEIVED_TOKENS: Final = "received_tokens"
"""Tokens received of a response that has no usage."""

FAILED_ATTEMPTS: Final = "failed_attempts"
"""Requests that a backend had to make again: a list of dicts with ``error`` and
``received_tokens``.
"""

TOKEN_LIMITS: Final = (
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "max_new_tokens",
    "num_predict",
)
"""What chat models call the limit of tokens in a response."""

USAGE_ESTIMATED: Final = "usage_estimated"
"""True if ``usage_metadata`` was counted from what had arrived, because the provider's
own never came.
"""


def is_cancelled(message: AIMessage) -> bool:
    """Return whether the response was cut off by us."""
    return message.response_metadata.get(FINISH_REASON) == CANCELLED


def sample_id(run: UUID | None = None) -> str:
    """Return an id for a sample's message that has none: after its run, as LangChain
    does, or a new one.
    """
    return id_of_run(run or uuid4())


class FailedSample(NamedTuple):
    """What a parallel sampler yields instead of a message when one sample failed and
    the others go on.

    Attributes:
        error: why.
        message: what had been generated, and is paid for; None if nothing was.
    """

    error: Exception
    message: AIMessage | None = None


class Cancellable(Protocol):
    """What a parallel sampler returns can be stopped."""

    def cancel(self) -> None:
        """Cut off what still runs, from any thread; it still comes out of the iterator,
        as :data:`CANCELLED`.
        """

    def close(self) -> None:
        """Cancel, and drop what was not handed over."""


class SampleStream(Cancellable, Protocol):
    """Ended samples in order of completion, for synchronous code.

    An exception out of the iterator fails all samples that have not come out.
    """

    def __iter__(self) -> Iterator[tuple[int, AIMessage | FailedSample]]:
        """(index, message) of each sample."""
        ...


class AsyncSampleStream(Cancellable, Protocol):
    """The same for asynchronous code."""

    def __aiter__(self) -> AsyncIterator[tuple[int, AIMessage | FailedSample]]:
        """(index, message) of each sample."""
        ...


@runtime_checkable
class ParallelSampler(Protocol):
    """A chat model that decodes several samples of one prompt together, as our
    llama.cpp model does.
    """

    def sample(
        self, messages: list[BaseMessage], *, n: int, first: int = 0, **kwargs: Any
    ) -> SampleStream:
        """Start samples ``first`` to ``first + n - 1``; sample i uses the model's seed
        + i.
        """
        ...

    def asample(
        self, messages: list[BaseMessage], *, n: int, first: int = 0, **kwargs: Any
    ) -> AsyncSampleStream:
        """The same, iterated with ``async for``."""
        ...
