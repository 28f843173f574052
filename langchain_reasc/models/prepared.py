"""What samples are drawn from: a chat model, unwrapped from its bindings and made safe to sample."""

from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import aclosing
from contextvars import Context
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableBinding, RunnableConfig, RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.config import merge_configs

from langchain_reasc.answers import schemas_of
from langchain_reasc.answers.objects import Schema
from langchain_reasc.answers.tool_schemas import text_schema_of
from langchain_reasc.calibration.asked import FixedPrompt, confidence_part
from langchain_reasc.calibration.fingerprint import fingerprint_of
from langchain_reasc.calibration.schema import Fingerprint
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.models.contract import ParallelSampler
from langchain_reasc.models.integrations import (
    PerConfig,
    asks_for_logprobs,
    findings,
    integration_of,
    is_configurable,
    leaves,
    moved_seed,
    own_copy,
    prepared,
    reason_for_no_logprobs,
    reason_for_not_asking,
    signals_of,
    without_n,
)
from langchain_reasc.models.named import ModelOrName, model_of
from langchain_reasc.models.stated import asking, instruction

__all__ = ["PreparedModel"]


@dataclass(frozen=True)
class PreparedModel:
    """A model with the arguments and the config bound to it.

    Attributes:
        model: a chat model, or any Runnable that returns an ``AIMessage`` (it is then invoked, and cannot be cut off in
            the middle).
        kwargs: the arguments of every call.
        config: the config of every call.
        notices: what the caller should know of the model: what makes its samples the same, what was switched off.
        no_logprobs: why no confidence can be had from it, where that is known beforehand.
        unasked: why it was not asked for logprobs, although they are read and nobody said that it has none.
        logprobs_wanted: whether the user asked for logprobs, and so finds them in the winning message.
        per_config: what it is under a call's config, where that decides; ``model`` is then what it is without one, and
            the rest is known once it is :meth:`resolved`.
        later: the arguments that were bound before it is resolved.
        quiet: whether its calls are told to no handler, because one run around them all is.
        ask_confidence: whether it is asked to state how confident it is, see :mod:`langchain_reasc.models.stated`.
        origin: the user's model, of which this is a copy; of one inside wrappers, that one.
        live: the same model for a response that is passed on while it comes, and whose confidence nobody reads; None
            where none is.
    """

    model: Runnable[LanguageModelInput, Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    config: RunnableConfig | None = None
    notices: tuple[str, ...] = ()
    no_logprobs: str | None = None
    unasked: str | None = None
    logprobs_wanted: bool = True
    per_config: "PerConfig[PreparedModel] | None" = None
    later: Mapping[str, Any] = field(default_factory=dict)
    quiet: bool = False
    ask_confidence: bool = False
    origin: object = None
    live: "PreparedModel | None" = None

    @classmethod
    def of(
        cls,
        model: ModelOrName,
        *,
        logprobs: bool = False,
        required: bool = False,
        quiet: bool = False,
        ask_confidence: bool = False,
        **kwargs: Any,
    ) -> "PreparedModel":
        """Unwrap ``model.bind(...)`` and ``model.with_config(...)``, and prepare the chat model inside.

        Args:
            model: what the user gave. One that is chosen or set by the config of a call is prepared as it is without
                one, if it is anything then, and must be :meth:`resolved` for each call.
            logprobs: whether confidences will be read, so that a model which can return logprobs is asked to.
            required: whether a response without them is of no use; else a server that refuses them is asked without.
            quiet: whether its calls are told to no handler, the model's own neither.
            ask_confidence: whether the model is asked to state its confidence in its response.
            **kwargs: further arguments of every call; they win over bound ones.
        """
        model = model_of(model)
        origin = _innermost(model)

        def prepare(one: Runnable[LanguageModelInput, Any]) -> "PreparedModel":
            # In a context of its own, or callbacks of a run around it would be taken for bound ones.
            make = partial(cls._of_one, one, quiet=quiet, kwargs=kwargs)
            ready = Context().run(make, logprobs=logprobs, required=required)
            live = None
            if quiet and not ask_confidence:  # which is stated in the text, and taken out of it
                live = Context().run(make, logprobs=False, live=True)
            return replace(ready, ask_confidence=ask_confidence, origin=origin, live=live)

        if not is_configurable(model):
            return prepare(model)
        per_config = PerConfig(model, prepare)
        try:
            default = per_config.under({})
        except ConfigurationError:  # only the config of a call says what it is
            return cls(
                model,
                without_n(kwargs),
                per_config=per_config,
                quiet=quiet,
                ask_confidence=ask_confidence,
                origin=origin,
            )
        return replace(default, notices=(), no_logprobs=None, unasked=None, per_config=per_config)

    @classmethod
    def _of_one(
        cls,
        model: Runnable[LanguageModelInput, Any],
        *,
        logprobs: bool,
        quiet: bool,
        kwargs: Mapping[str, Any],
        required: bool = False,
        live: bool = False,
    ) -> "PreparedModel":
        kwargs = {**kwargs}
        config: RunnableConfig = {}
        while isinstance(model, RunnableBinding) and not model.config_factories:  # which hold listeners
            kwargs = {**model.kwargs, **kwargs}
            config = merge_configs(model.config, config)
            model = model.bound
        ready, added = prepared(model, kwargs, logprobs=logprobs, required=required, quiet=quiet, live=live)
        return cls(
            ready,
            {**without_n(kwargs), **added},
            config,
            findings(model, kwargs, logprobs=logprobs),
            reason_for_no_logprobs(model, kwargs),
            reason_for_not_asking(model, kwargs) if logprobs else None,
            asks_for_logprobs(model, kwargs),
            quiet=quiet,
        )

    def resolved(self, config: RunnableConfig) -> "PreparedModel":
        """The model as it is under a call's config, for the samples of that call.

        It is the same for every config, unless ``configurable_fields``, ``configurable_alternatives`` or
        ``init_chat_model`` leave something to it. The last few are kept, since each has a client, or a loaded file.

        Raises:
            ConfigurationError: there is no such model.
        """
        return self if self.per_config is None else self.per_config.under(config).bind(self.later)

    @property
    def signals(self) -> tuple[str, ...] | None:
        """The token signals that the model gives, those of most use first; None where nobody knows."""
        return None if self.per_config else signals_of(self.model, self.kwargs)

    def bind(self, kwargs: Mapping[str, Any]) -> "PreparedModel":
        """The same source with further arguments for every call."""
        if not kwargs:
            return self
        every = {**self.kwargs, **kwargs}
        if self.per_config is not None:
            return replace(self, kwargs=without_n(every), later={**self.later, **kwargs})
        notices = dict.fromkeys([*self.notices, *findings(self.model, every, logprobs=False)])
        wanted = self.logprobs_wanted or bool(kwargs.get("logprobs"))
        live = self.live and self.live.bind(kwargs)
        return replace(self, kwargs=without_n(every), notices=tuple(notices), logprobs_wanted=wanted, live=live)

    @property
    def schemas(self) -> dict[str, dict[str, Any]] | None:
        """Tool -> schema of its arguments, of the tools that are bound; None where none are, as far as can be seen."""
        tools = self.kwargs.get("tools")
        return schemas_of(tools) if tools else None

    @property
    def text_schema(self) -> Schema | None:
        """The schema that the text of each response is held to, as far as can be seen."""
        return text_schema_of(self.kwargs)

    @property
    def streams(self) -> bool:
        """Whether a sample can be read as a stream (and so be cut off in the middle)."""
        return _streams(self.model)

    @property
    def names_end(self) -> bool:
        """Whether each stream of it ends with a reason; one without was broken off."""
        return isinstance(self.model, BaseChatModel) and integration_of(self.model).names_end

    @property
    def sampler(self) -> ParallelSampler | None:
        """The model, where it samples in parallel itself; one with fallbacks only looks like its first model."""
        return self.model if isinstance(self.model, BaseChatModel) and isinstance(self.model, ParallelSampler) else None

    def stream(self, messages: list[BaseMessage], config: RunnableConfig, **kwargs: Any) -> Generator[BaseMessage]:
        """One sample, token by token, from a copy of the model that no other sample uses (where that matters)."""
        with own_copy(self.model) as own:
            yield from own.stream(messages, config, **kwargs)

    async def astream(
        self, messages: list[BaseMessage], config: RunnableConfig, **kwargs: Any
    ) -> AsyncGenerator[BaseMessage]:
        """The asynchronous :meth:`stream`."""
        with own_copy(self.model) as own:
            stream = cast("AsyncGenerator[BaseMessage]", own.astream(messages, config, **kwargs))
            async with aclosing(stream):
                async for chunk in stream:
                    yield chunk

    def invoke(self, messages: list[BaseMessage], config: RunnableConfig, **kwargs: Any) -> Any:
        """One sample as a whole, from such a copy."""
        with own_copy(self.model) as own:
            return own.invoke(messages, config, **kwargs)

    async def ainvoke(self, messages: list[BaseMessage], config: RunnableConfig, **kwargs: Any) -> Any:
        """The asynchronous :meth:`invoke`."""
        with own_copy(self.model) as own:
            return await own.ainvoke(messages, config, **kwargs)

    def asked(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """What it is really given for a prompt: that, or the prompt with the wish for a stated confidence."""
        return asking(messages, tools=self._has_tools) if self.ask_confidence else list(messages)

    @property
    def _has_tools(self) -> bool:
        return bool(self.kwargs.get("tools"))

    def call_kwargs(self, index: int) -> dict[str, Any]:
        """The arguments of sample ``index``: a seed that is set is moved on, or all samples would be the same."""
        return {**self.kwargs, **moved_seed(self.model, self.kwargs, index)}

    def call_config(self, config: RunnableConfig, index: int) -> RunnableConfig:
        """The config of sample ``index``. LangGraph shows no tokens of runs tagged ``nostream``."""
        above = cast(RunnableConfig, {key: value for key, value in config.items() if key not in ("run_name", "run_id")})
        merged = merge_configs(self.config, above, {"tags": ["nostream", f"reasc:sample:{index}"]})
        return {**merged, "callbacks": []} if self.quiet else merged

    def fingerprint(
        self,
        messages: Sequence[BaseMessage] | None = None,
        *,
        prompt: FixedPrompt | None = None,
        answer: Any = None,
    ) -> Fingerprint:
        """What a calibration measured on this source would hold for.

        Args:
            messages: the messages of a call, of which the system messages are compared.
            prompt: which part of a prompt is fixed, see :func:`~langchain_reasc.calibration.asked.fixed_prompt`.
            answer: where the answer is in a response.

        Returns:
            It; little is known of a model that is not a chat model, or that a call's config has yet to settle.
        """
        asks = confidence_part(instruction(tools=self._has_tools)) if self.ask_confidence else None
        if not isinstance(self.model, BaseChatModel) or self.per_config is not None:
            return Fingerprint(ask_confidence=asks)
        own = fingerprint_of(self.model, kwargs=self.kwargs, messages=messages, prompt=prompt, answer=answer)
        return own.model_copy(update={"ask_confidence": asks})


def _innermost(model: Runnable[Any, Any]) -> Runnable[Any, Any]:
    while isinstance(model, RunnableBindingBase):
        model = model.bound
    return next((leaf.model for leaf in leaves(model, {})), model)


def _streams(model: Runnable[Any, Any]) -> bool:
    if isinstance(model, RunnableBindingBase):
        return _streams(model.bound)
    if isinstance(model, RunnableWithFallbacks):
        return all(map(_streams, model.runnables))
    return isinstance(model, BaseChatModel) and model.disable_streaming is not True
