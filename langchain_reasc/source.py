"""What samples are drawn from: a chat model, unwrapped from its bindings and made safe to sample."""

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, convert_to_messages
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import Runnable, RunnableBinding, RunnableConfig
from langchain_core.runnables.config import merge_configs

from langchain_reasc.calibration.fingerprint import fingerprint_of
from langchain_reasc.calibration.schema import Fingerprint
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.integrations import (
    findings,
    moved_seed,
    prepared,
    reason_for_no_logprobs,
    reason_for_not_asking,
    without_n,
)

__all__ = ["FailedSample", "ParallelSampler", "SampleStream", "Source", "to_messages"]


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


@dataclass(frozen=True)
class Source:
    """A model with the arguments and the config bound to it.

    Attributes:
        model: a chat model, or any Runnable that returns an ``AIMessage`` (it is then invoked, and cannot be cut off in
            the middle).
        kwargs: arguments of every call.
        config: config of every call.
        notices: what the caller should know of the model: what makes its samples the same, what was switched off.
        no_logprobs: why no confidence can be had from it, where that is known beforehand.
        unasked: why it was not asked for logprobs, although they are read and nobody said that it has none.
    """

    model: Runnable[LanguageModelInput, Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    config: RunnableConfig | None = None
    notices: tuple[str, ...] = ()
    no_logprobs: str | None = None
    unasked: str | None = None

    @classmethod
    def of(cls, model: Runnable[LanguageModelInput, Any], *, logprobs: bool = False, **kwargs: Any) -> "Source":
        """Unwrap ``model.bind(...)`` and ``model.with_config(...)``, and prepare the chat model inside.

        Args:
            model: what the user gave.
            logprobs: whether confidences will be read, so that a model which can return logprobs is asked to.
            **kwargs: further arguments of every call; they win over bound ones.
        """
        config: RunnableConfig = {}
        while isinstance(model, RunnableBinding) and not model.config_factories:  # which hold listeners
            kwargs = {**model.kwargs, **kwargs}
            config = merge_configs(model.config, config)
            model = model.bound
        ready, added = prepared(model, kwargs, logprobs=logprobs)
        return cls(
            ready,
            {**without_n(kwargs), **added},
            config,
            findings(model, kwargs, logprobs=logprobs),
            reason_for_no_logprobs(model, kwargs),
            reason_for_not_asking(model, kwargs) if logprobs else None,
        )

    def bind(self, kwargs: Mapping[str, Any]) -> "Source":
        """The same source with further arguments for every call."""
        if not kwargs:
            return self
        every = {**self.kwargs, **kwargs}
        notices = dict.fromkeys([*self.notices, *findings(self.model, every, logprobs=False)])
        return replace(self, kwargs=without_n(every), notices=tuple(notices))

    @property
    def streams(self) -> bool:
        """Whether a sample can be read as a stream (and so be cut off in the middle)."""
        return isinstance(self.model, BaseChatModel) and self.model.disable_streaming is not True

    @property
    def sampler(self) -> ParallelSampler | None:
        """The model, where it samples in parallel itself; one with fallbacks only looks like its first model."""
        return self.model if isinstance(self.model, BaseChatModel) and isinstance(self.model, ParallelSampler) else None

    def stream(self, messages: list[BaseMessage], config: RunnableConfig, **kwargs: Any) -> Generator[BaseMessage]:
        """One sample, token by token."""
        return cast("Generator[BaseMessage]", self.model.stream(messages, config, **kwargs))

    def astream(
        self, messages: list[BaseMessage], config: RunnableConfig, **kwargs: Any
    ) -> AsyncGenerator[BaseMessage]:
        """The asynchronous :meth:`stream`."""
        return cast("AsyncGenerator[BaseMessage]", self.model.astream(messages, config, **kwargs))

    def call_kwargs(self, index: int) -> dict[str, Any]:
        """The arguments of sample ``index``: a seed that is set is moved on, or all samples would be the same."""
        return {**self.kwargs, **moved_seed(self.model, self.kwargs, index)}

    def call_config(self, config: RunnableConfig, index: int) -> RunnableConfig:
        """The config of sample ``index``. LangGraph shows no tokens of runs tagged ``nostream``."""
        above = cast(RunnableConfig, {key: value for key, value in config.items() if key not in ("run_name", "run_id")})
        return merge_configs(self.config, above, {"tags": ["nostream", f"reasc:sample:{index}"]})

    def fingerprint(self, messages: Sequence[BaseMessage] | None = None) -> Fingerprint:
        """What a calibration measured on this source would hold for."""
        if not isinstance(self.model, BaseChatModel):
            return Fingerprint()
        return fingerprint_of(self.model, kwargs=self.kwargs, messages=messages)


def to_messages(value: LanguageModelInput) -> list[BaseMessage]:
    """Whatever a chat model takes, as messages.

    Raises:
        ConfigurationError: not a string, message list or prompt value, or nothing in it.
    """
    if isinstance(value, str):
        messages: list[BaseMessage] = [HumanMessage(value)]
    elif isinstance(value, PromptValue):
        messages = value.to_messages()
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        messages = convert_to_messages(value)
    else:
        raise ConfigurationError(
            f"the input must be a string, a list of messages or a prompt value, got {type(value).__name__}"
        )
    if not messages:
        raise ConfigurationError("the input holds no message")
    return messages
