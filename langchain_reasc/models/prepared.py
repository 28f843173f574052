"""Prepare a chat model for sampling: unwrap its bindings, ask for logprobs, make it
safe to call in parallel.

Safe means that each response is a fresh one, comes alone, and has the log-probabilities
that the decision reads.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any, Final, NamedTuple, get_args

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import BaseMessage, HumanMessage, convert_to_messages
from langchain_core.output_parsers import BaseLLMOutputParser
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import (
    Runnable,
    RunnableAssign,
    RunnableBinding,
    RunnableConfig,
    RunnableParallel,
    RunnableSequence,
    RunnableWithFallbacks,
)
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.config import merge_configs

from langchain_reasc.answers import Schema, runs_functions, schemas_of, text_schema_of
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.models.contract import ParallelSampler
from langchain_reasc.models.integrations import is_known
from langchain_reasc.models.named import ModelOrName, model_of
from langchain_reasc.models.refusal import (
    LOGPROBS_REQUEST,
    SERVER_MEMORY,
    LogprobsRequest,
    logprobs_memory,
)
from langchain_reasc.models.settings import NEUTRAL, share_a_client, without
from langchain_reasc.models.stated import ask_for_confidence
from langchain_reasc.models.thinking import SETTING as THINKING
from langchain_reasc.models.thinking import must_think, without_thinking
from langchain_reasc.models.usage import estimated_prompt
from langchain_reasc.models.wrappers import (
    PASSED_THROUGH,
    AnyRunnable,
    Leaf,
    PerConfig,
    is_configurable,
    leaves,
    name_of_model,
    rewrap,
    streams,
    wrapped_runnables,
)

logger = logging.getLogger(__name__)

_GREEDY: Final = 1e-6  # ChatGroq turns a temperature of 0 into 1e-8
_MIXED_SEEDS: Final = (
    "the seed is the same for every sample, since models that fall back on one another "
    "name it differently"
)
_NOT_THINKING: Final = (
    "thinking was switched off for this step: while the model thinks, its server "
    "refuses tool calls without thoughts, such as another model's"
)
_REGISTER: Final = (
    "if it returns some, say so with langchain_reasc.register_integration"
)


@dataclass(frozen=True)
class PreparedModel:
    """A model with the arguments and the config bound to it.

    Attributes:
        model: a chat model, or any Runnable that returns an ``AIMessage`` (it is then
            invoked, and cannot be cut off in the middle).
        kwargs: the arguments of every call.
        config: the config of every call.
        notices: what the caller should know of the model: what makes its samples the
            same, what was switched off.
        no_logprobs: why no confidence can be had from it, if that is known beforehand.
        not_requested: why no logprobs were requested of it, although they are read and
            it is not known to have none.
        keep_logprobs: whether the user asked for logprobs, and so finds them in the
            winning message.
        per_config: what it is under a call's config, if that decides; ``model`` is then
            what it is without one, and the rest is known once it is :meth:`resolved`.
        later: the arguments that were bound once it was prepared.
        quiet: whether its calls reach no handler, because one run around them all does.
        ask_confidence: whether it is asked to state how confident it is, see
            :mod:`langchain_reasc.models.stated`.
        origin: the user's model, of which this is a copy; of one inside wrappers, that
            one.
        classes: tool -> the class by which it validates its arguments, where ``kwargs``
            has its JSON schema alone.
        prepare_live: prepares the same model for a response that is passed on while it
            comes, given whether its confidence is read; None if no response can be.
    """

    model: Runnable[LanguageModelInput, Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    config: RunnableConfig | None = None
    notices: tuple[str, ...] = ()
    no_logprobs: str | None = None
    not_requested: str | None = None
    keep_logprobs: bool = True
    per_config: "PerConfig[PreparedModel] | None" = None
    later: Mapping[str, Any] = field(default_factory=dict)
    quiet: bool = False
    ask_confidence: bool = False
    origin: object = None
    classes: Mapping[str, type] = field(default_factory=dict)
    prepare_live: "Callable[[bool], PreparedModel] | None" = None

    def resolved(
        self, config: RunnableConfig, kwargs: Mapping[str, Any] | None = None
    ) -> "PreparedModel":
        """Return the model as it is under a call's config, with further arguments of
        the call.

        It is the same for every config, unless ``configurable_fields``,
        ``configurable_alternatives`` or ``init_chat_model`` leave something to it. The
        last few are kept, since each has a client, or a loaded file.

        Raises:
            ConfigurationError: there is no such model.
        """
        model = self
        if self.per_config is not None:
            model = self.per_config.under(config)
            # They were found after the model was prepared.
            if self.classes:
                model = replace(model, classes=self.classes)
        return model._bound_to(kwargs) if kwargs else model

    def live_model(self, *, read: bool) -> "PreparedModel | None":
        """Return the model for a response that is passed on while it comes, its
        confidence ``read`` or not; or None.
        """
        if self.prepare_live is None:
            return None
        # Tools may have been bound since.
        return self.prepare_live(read)._bound_to(self.later)

    def _bound_to(self, kwargs: Mapping[str, Any]) -> "PreparedModel":
        arguments = {**self.kwargs, **kwargs}
        notices = _notices(list(leaves(self.model, arguments)), logprobs=False)
        return replace(
            self,
            kwargs=_without_n(arguments),
            notices=tuple(dict.fromkeys(self.notices + notices)),
            keep_logprobs=self.keep_logprobs or bool(kwargs.get("logprobs")),
            later=kwargs,
        )

    @cached_property
    def _leaves(self) -> Sequence[Leaf]:
        return tuple(leaves(self.model, self.kwargs))

    @property
    def names(self) -> list[str]:
        """The names of the chat models inside, as their providers know them."""
        names = (name_of_model(leaf.model) for leaf in self._leaves)
        return list(filter(None, names))

    def shares_client_with(self, model: "PreparedModel") -> bool:
        """Return whether another model takes the settings that were written for this
        one.
        """
        return share_a_client(self._leaves, model._leaves)

    def settings_for(
        self, model: "PreparedModel", settings: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the settings of a call to this model that another model understands."""
        if self.shares_client_with(model):
            return dict(settings)
        return {name: value for name, value in settings.items() if name in NEUTRAL}

    @property
    def must_think(self) -> bool:
        """Whether it refuses steps of a tool loop without thoughts."""
        return any(map(must_think, self._leaves))

    def without_thinking(self) -> "PreparedModel":
        """Return the same model with thinking switched off."""
        prepare_live = self.prepare_live
        return replace(
            self,
            model=without_thinking(self.model),
            kwargs=without(self.kwargs, {THINKING}),
            later=without(self.later, {THINKING}),
            notices=(*self.notices, _NOT_THINKING),
            prepare_live=prepare_live
            and (lambda read: prepare_live(read).without_thinking()),
        )

    @property
    def signals(self) -> tuple[str, ...] | None:
        """The token signals that the model gives, the most useful first; None if
        unknown.
        """
        is_certain = all(is_known(leaf.model) for leaf in self._leaves)
        if self.per_config or not self._leaves or not is_certain:
            return None
        signals, *fallbacks = map(_signals, self._leaves)
        for signals_of_fallback in fallbacks:
            signals = tuple(name for name in signals if name in signals_of_fallback)
        return signals

    @cached_property
    def schemas(self) -> dict[str, Schema] | None:
        """Tool -> schema of its arguments; None if no tools are bound, as far as can be
        seen.
        """
        tools = self.kwargs.get("tools")
        if not tools:
            return None
        schemas = schemas_of(tools)
        return {name: self.classes.get(name, schemas[name]) for name in schemas}

    @cached_property
    def runs_functions(self) -> bool:
        """Whether functions of the user validate arguments of tools, which may take
        long.
        """
        return any(
            isinstance(schema, type) and runs_functions(schema)
            for schema in (self.schemas or {}).values()
        )

    @cached_property
    def text_schema(self) -> Schema | None:
        """The schema of the text of each response, as far as can be seen."""
        return text_schema_of(self.kwargs)

    @cached_property
    def streams(self) -> bool:
        """Whether a sample can be read as a stream (and so be cut off in the middle)."""
        return streams(self.model)

    @cached_property
    def names_end(self) -> bool:
        """Whether each stream ends with a reason, so that one without was broken off."""
        if not isinstance(self.model, BaseChatModel):
            return False
        return self._leaves[0].integration.names_end

    @cached_property
    def sampler(self) -> ParallelSampler | None:
        """The model, if it samples in parallel itself."""
        model = self.model
        # A model with fallbacks has all attributes of its first model.
        if isinstance(model, BaseChatModel) and isinstance(model, ParallelSampler):
            return model
        return None

    def prompt(self, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
        """Return a prompt with the request to state a confidence, if that is asked for."""
        if self.ask_confidence:
            return ask_for_confidence(messages, tools=bool(self.kwargs.get("tools")))
        return list(messages)

    def prompt_tokens(self, messages: Sequence[BaseMessage]) -> int:
        """Return about how many tokens a prompt has, with the tools of the first model."""
        arguments = self._leaves[0].arguments if self._leaves else self.kwargs
        return estimated_prompt(self.prompt(messages), arguments)

    @cached_property
    def _seed(self) -> int | None:
        """The seed that is set, if it can be moved on."""
        # A step of a chain does not get the arguments of a call.
        if not all(leaf.reached and leaf.integration.seed for leaf in self._leaves):
            return None
        # Models that fall back on one another get the same arguments.
        if len({leaf.integration.seed for leaf in self._leaves}) != 1:
            return None
        seed = self._leaves[0].seed
        return seed if isinstance(seed, int) else None

    def call_kwargs(self, index: int) -> dict[str, Any]:
        """Return the arguments of sample ``index``: a set seed is moved on, or all
        samples would be the same.
        """
        if self._seed is None:
            return {**self.kwargs}
        first = self._leaves[0]
        seed = self._seed + index
        move = first.integration.seed
        if callable(move):
            return {**self.kwargs, **move(first.model, first.arguments, seed)}
        return {**self.kwargs, str(move): seed}

    def call_config(self, config: RunnableConfig, index: int) -> RunnableConfig:
        """Return the config of sample ``index``. LangGraph shows no tokens of runs
        tagged ``nostream``.
        """
        inherited: RunnableConfig = {**config}
        # These two belong to the run above, and each sample is a run of its own.
        inherited.pop("run_name", None)
        inherited.pop("run_id", None)
        tags: RunnableConfig = {"tags": ["nostream", f"reasc:sample:{index}"]}
        merged = merge_configs(self.config, inherited, tags)
        if self.quiet:
            merged["callbacks"] = []
        return merged


def prepare_model(
    model: ModelOrName,
    *,
    logprobs: bool = False,
    alternatives: bool = True,
    required: bool = False,
    quiet: bool = False,
    ask_confidence: bool = False,
    **kwargs: Any,
) -> PreparedModel:
    """Unwrap ``model.bind(...)`` and ``model.with_config(...)``, and prepare the chat
    model inside.

    Args:
        model: what the user gave. One that is chosen or set by the config of a call is
            prepared as it is without one, if it is anything then, and must be
            :meth:`~PreparedModel.resolved` for each call.
        logprobs: whether confidences will be read, so that a model which can return
            logprobs is asked to.
        alternatives: whether the logprobs of other tokens than the chosen ones are
            read, too. They are most of a response, and most of the work of reading it.
        required: whether a response without them is of no use; else a server that
            refuses them is asked without.
        quiet: whether its calls reach no handler, the model's own neither.
        ask_confidence: whether the model is asked to state its confidence in its
            response.
        **kwargs: further arguments of every call; they win over bound ones.
    """
    model = model_of(model)
    unprepared = PreparedModel(
        model,
        _without_n(kwargs),
        quiet=quiet,
        ask_confidence=ask_confidence,
        origin=_innermost(model),
    )
    purpose = _Purpose(logprobs, required, quiet, alternatives=alternatives)

    def prepare(inner: AnyRunnable) -> PreparedModel:
        # The output of with_structured_output, say, cannot be voted on.
        output = _other_output(inner)
        if output is not None:
            raise ConfigurationError(
                f"the model {output}, and ReASC votes on messages: give a chat model, "
                "and what parses them comes behind the vote, as "
                "ReASCRunnable(model=llm).with_structured_output(Schema), or "
                "ReASCRunnable(model=llm) | parser"
            )
        # In a context of its own, or callbacks of a run around it would be taken for
        # bound ones.
        prepared = Context().run(_prepared, unprepared, inner, kwargs, purpose)
        # A confidence that is stated in the text has to be taken out of it first.
        if not quiet or ask_confidence:
            return prepared

        @cache
        def prepare_live(reads_confidence: bool) -> PreparedModel:
            reads_logprobs = logprobs and reads_confidence
            live = purpose._replace(logprobs=reads_logprobs, live=True)
            return Context().run(_prepared, unprepared, inner, kwargs, live)

        return replace(prepared, prepare_live=prepare_live)

    if not is_configurable(model):
        return prepare(model)
    per_config = PerConfig(model, prepare)
    try:
        default = per_config.under({})
    except ConfigurationError:
        # Only the config of a call says what the model is.
        default = unprepared
    return replace(
        default, notices=(), no_logprobs=None, not_requested=None, per_config=per_config
    )


def _prepared(
    unprepared: PreparedModel,
    model: AnyRunnable,
    kwargs: Mapping[str, Any],
    purpose: "_Purpose",
) -> PreparedModel:
    config: RunnableConfig = {}
    # Listeners are made for each call by factories, which only the binding calls.
    while isinstance(model, RunnableBinding) and not model.config_factories:
        kwargs = {**model.kwargs, **kwargs}
        config = merge_configs(model.config, config)
        model = model.bound
    ready, added = _sampleable(model, kwargs, purpose)
    inner_models = list(leaves(model, kwargs))
    not_requested = None
    if purpose.logprobs:
        not_requested = _not_requested_reason(inner_models)
    keep_logprobs = any(
        leaf.integration.logprobs and leaf.given(leaf.integration.logprobs)
        for leaf in inner_models
    )
    return replace(
        unprepared,
        model=ready,
        kwargs={**_without_n(kwargs), **added},
        config=config,
        notices=_notices(inner_models, logprobs=purpose.logprobs),
        no_logprobs=_no_logprobs_reason(inner_models),
        not_requested=not_requested,
        keep_logprobs=keep_logprobs,
    )


def _other_output(model: AnyRunnable) -> str | None:
    """Say what a model, or a step behind it, gives in place of messages; None if it may
    give messages.
    """
    if isinstance(model, BaseChatModel):
        return None
    if isinstance(model, RunnableSequence):
        return _other_output(model.last)
    if isinstance(model, RunnableBindingBase) and model.custom_output_type is None:
        return _other_output(model.bound)
    if isinstance(model, RunnableWithFallbacks):
        return next(filter(None, map(_other_output, model.runnables)), None)
    if isinstance(model, BaseLLMOutputParser | RunnableParallel | RunnableAssign):
        return f"ends in {type(model).__name__}"
    try:
        kind = model.OutputType
    except TypeError:
        # A Runnable without annotations cannot tell.
        return None
    if kind is Any or not isinstance(kind, type) or issubclass(kind, BaseMessage):
        return None
    return f"gives {kind.__name__}"


def to_messages(value: LanguageModelInput) -> list[BaseMessage]:
    """Return the input of a chat model as messages, without the empty ones of ReASC
    that abstained.

    Raises:
        ConfigurationError: not a string, message list or prompt value, or an empty one.
    """
    if isinstance(value, str):
        return [HumanMessage(value)]
    if isinstance(value, PromptValue):
        messages = value.to_messages()
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        messages = convert_to_messages(value)
    else:
        raise ConfigurationError(
            "the input must be a string, a list of messages or a prompt value, got "
            f"{type(value).__name__}"
        )
    prompt = []
    for message in messages:
        account = message.response_metadata.get("reasc")
        abstained = isinstance(account, dict) and account.get("abstained")
        # Many providers refuse an empty message of the assistant.
        if message.content or not abstained:
            prompt.append(message)
    if not prompt:
        raise ConfigurationError("the input holds no message")
    return prompt


def _innermost(model: AnyRunnable) -> AnyRunnable:
    for leaf in leaves(model, {}):
        return leaf.model
    while isinstance(model, RunnableBindingBase):
        model = model.bound
    return model


# Making a model safe to sample
# ---------------------------------------------------------------------------------------


class _Purpose(NamedTuple):
    """What a model is sampled for.

    Attributes:
        logprobs: whether confidences will be read.
        required: whether a response without them is of no use; else a server that
            refuses them is asked without.
        quiet: whether the callbacks set on chat models are taken off.
        live: whether a response is passed on while it comes. Then also a model that
            samples in parallel in its own way is streamed, and one inside a wrapper.
        alternatives: whether the logprobs of other tokens than the chosen ones are
            read, too.
    """

    logprobs: bool
    required: bool = False
    quiet: bool = False
    live: bool = False
    alternatives: bool = True


def _sampleable(
    model: AnyRunnable,
    arguments: Mapping[str, Any],
    purpose: _Purpose,
    *,
    whole: bool = False,
) -> tuple[AnyRunnable, dict[str, Any]]:
    """A copy that can be sampled, and the arguments to add to its calls; another
    Runnable is left alone.

    Responses of a model inside a wrapper are taken ``whole``. LangChain would still
    stream them inside if a handler listens for tokens, and complete the arguments of
    calls cut in half.
    """
    if isinstance(model, BaseChatModel):
        return _sampleable_chat_model(Leaf(model, arguments), purpose, whole=whole)
    sampleable = partial(_sampleable, purpose=purpose, whole=not purpose.live)
    # A retry, for example.
    if isinstance(model, RunnableBindingBase):
        bound, added = sampleable(model.bound, {**model.kwargs, **arguments})
        update = {"bound": bound, "kwargs": {**_without_n(model.kwargs), **added}}
        return model.model_copy(update=update), {}
    wrapped = wrapped_runnables(model)
    if not wrapped:
        return model, {}
    inner_arguments = {} if isinstance(model, RunnableSequence) else arguments
    # A retry, a chain or fallbacks stay around the copies.
    copies = []
    for inner in wrapped:
        copy, added = sampleable(inner, inner_arguments)
        # Not all take the same arguments.
        copies.append(copy.bind(**added) if added else copy)
    return rewrap(model, copies), {}


def _sampleable_chat_model(
    leaf: Leaf, purpose: _Purpose, *, whole: bool
) -> tuple[BaseChatModel, dict[str, Any]]:
    model = leaf.model
    integration = leaf.integration
    streams = integration.streams and (
        integration.streams_logprobs or not purpose.logprobs
    )
    fields = _safe_fields(leaf, whole=whole or not streams)
    if purpose.quiet:
        fields |= {"callbacks": None, "verbose": False}
    added = without(integration.arguments, leaf.arguments)
    request = None
    if purpose.logprobs:
        for name, value in _logprobs_options(leaf, purpose).items():
            if _accepts(model, name, value):
                fields[name] = value
            else:
                added[name] = value
        request = _logprobs_request(leaf, required=purpose.required)
    copy = model.model_copy(update=fields)
    if purpose.live or not isinstance(copy, ParallelSampler):
        object.__setattr__(copy, LOGPROBS_REQUEST, request)
        object.__setattr__(copy, SERVER_MEMORY, logprobs_memory(model))
    return copy, added


def _safe_fields(leaf: Leaf, *, whole: bool) -> dict[str, Any]:
    """The fields to change on a copy of a chat model, so that each response is new and
    comes alone.
    """
    model = leaf.model
    n = leaf.integration.n
    names = type(leaf.model).model_fields
    # The global cache would return one sample n times.
    fields: dict[str, Any] = {"cache": False}
    if "stream_usage" in names:
        fields["stream_usage"] = True
    if n and isinstance(getattr(model, n, None), int):
        fields[n] = 1
    for name in PASSED_THROUGH:
        settings = getattr(model, name, None)
        if name in names and settings:
            fields[name] = _without_n(settings)
    if whole:
        fields["disable_streaming"] = True
        if "streaming" in names:
            fields["streaming"] = False
    return fields


def _without_n(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a call for one response: several in one stream cannot be told apart,
    nor cut off one by one.
    """
    safe = dict(arguments)
    safe.pop("n", None)
    for name in PASSED_THROUGH:
        if isinstance(safe.get(name), Mapping):
            # The provider gets what is in these dicts.
            safe[name] = _without_n(safe[name])
    return safe


def _logprobs_options(leaf: Leaf, purpose: _Purpose) -> dict[str, Any]:
    """The options to add so that a model returns logprobs, with as many alternatives as
    it can if these are read, and else with one. Some servers take 0 for no logprobs.

    A number that the user chose is kept, and so is ``logprobs=False`` of the call.
    """
    integration = leaf.integration
    name = integration.logprobs
    top = integration.top_logprobs
    most = integration.max_top_logprobs if purpose.alternatives else 1
    if name is None or leaf.arguments.get(name, True) is False:
        return {}
    setting = leaf.given(name)
    count = leaf.given(top or "top_logprobs")
    if top is None:
        if isinstance(setting, int) and not isinstance(setting, bool):
            return {name: setting}
        # ``logprobs`` itself takes the number of alternatives.
        return {name: most if count is None else count}
    options: dict[str, Any] = {}
    if not setting:
        options[name] = True
    if count is None:
        options[top] = most
    return options


def _logprobs_request(leaf: Leaf, *, required: bool) -> LogprobsRequest | None:
    """How a model is asked for logprobs, in case its server refuses."""
    integration = leaf.integration
    fields = type(leaf.model).model_fields
    if integration.logprobs is None:
        return None
    names = frozenset(filter(None, (integration.logprobs, integration.top_logprobs)))
    defaults = {
        name: fields[name].get_default(call_default_factory=True)
        for name in names & fields.keys()
    }
    return LogprobsRequest(
        logprobs_memory(leaf.model), names, defaults, required=required
    )


def _accepts(model: BaseChatModel, name: str, value: Any) -> bool:
    """Whether a model has a field for a value."""
    field = type(model).model_fields.get(name)
    if field is None:
        return False
    # A field that says yes or no takes no number.
    kinds = (field.annotation, *get_args(field.annotation))
    return isinstance(value, bool) or int in kinds


# Notices of how a model was set up
# ---------------------------------------------------------------------------------------


def _notices(inner_models: Sequence[Leaf], *, logprobs: bool) -> tuple[str, ...]:
    """What makes the samples of a model the same, or its confidence unreadable; each
    once.
    """
    notices: list[str] = []
    for leaf in inner_models:
        leaf_notices = _sampling_notices(leaf)
        reason = leaf.integration.no_logprobs
        if logprobs and reason:
            leaf_notices.append(f"no confidence: {reason}")
        notices += [f"{type(leaf.model).__name__}: {notice}" for notice in leaf_notices]
    seed_names = {leaf.integration.seed for leaf in inner_models}
    if len(seed_names) > 1 and any(leaf.seed is not None for leaf in inner_models):
        notices.append(_MIXED_SEEDS)
    return tuple(dict.fromkeys(notices))


def _sampling_notices(leaf: Leaf) -> list[str]:
    notices = []
    # top_k=0 and -1 stand for no limit.
    greedy = {"temperature": (0, _GREEDY), "top_p": (0, _GREEDY), "top_k": (1, 1)}
    for option, (least, most) in greedy.items():
        value = leaf.given(option)
        if isinstance(value, int | float) and least <= value <= most:
            notice = (
                f"{option}={value:g} makes every sample the same, so sampling adds "
                "cost and no evidence; sample at a temperature of about 0.7"
            )
            notices.append(notice)
            # A prepared copy shares the memory of its original.
            memory = leaf.model.__dict__.get(SERVER_MEMORY)
            memory = memory or logprobs_memory(leaf.model)
            if notice not in memory.warned:
                memory.warned.add(notice)
                logger.warning("%s: %s", type(leaf.model).__name__, notice)
    n = leaf.given(leaf.integration.n or "n")
    if leaf.integration.n and isinstance(n, int | float) and n > 1:
        notices.append(
            f"n={n:g} was set aside; every sample is a request of its own, so that it "
            "can be cut off"
        )
    if leaf.seed is not None and not leaf.moves_seed:
        notices.append(
            f"seed={leaf.seed} cannot be moved on from sample to sample, which makes "
            "them all the same; leave it out"
        )
    return notices


def _no_logprobs_reason(inner_models: Sequence[Leaf]) -> str | None:
    """Why a model returns no logprobs, if that is known before anything is paid for."""
    reasons = [leaf.integration.no_logprobs for leaf in inner_models]
    if not reasons or not all(reasons):
        return None
    name = type(inner_models[0].model).__name__
    return f"{name} returns no logprobs: {reasons[0]}; {_REGISTER}"


def _not_requested_reason(inner_models: Sequence[Leaf]) -> str | None:
    """Why a model of an unknown class is not asked for logprobs, although it might
    return them.
    """
    if not inner_models or any(
        leaf.integration.logprobs or is_known(leaf.model) for leaf in inner_models
    ):
        return None
    name = type(inner_models[0].model).__name__
    return (
        f"{name} was not asked for them, since the class is not known and has no fields "
        f"named logprobs and top_logprobs; {_REGISTER}, or bind what asks for them"
    )


def _signals(leaf: Leaf) -> tuple[str, ...]:
    signals = getattr(leaf.model, "signals", None)
    # Our llama.cpp model computes them itself.
    if isinstance(signals, Sequence) and signals:
        return tuple(map(str, signals))
    if leaf.integration.logprobs is None:
        return ()
    return ("top_k", "token_logprob", "neg_entropy")
