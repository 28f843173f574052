"""Find chat models inside LangChain's wrappers: bindings, retries, fallbacks, chains,
and configurable models.

A call's config chooses or sets a model in two ways: by ``configurable_fields`` and
``configurable_alternatives`` of any Runnable, and by
``init_chat_model(..., configurable_fields=...)``, which makes a new chat model for
every single call.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextvars import Context
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Generic, TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import (
    Runnable,
    RunnableConfig,
    RunnableSequence,
    RunnableWithFallbacks,
)
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.config import merge_configs
from langchain_core.runnables.configurable import DynamicRunnable
from pydantic import ValidationError

from langchain_reasc.complaints import findings
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.langchain_internals import (
    configured_keys,
    configured_model,
    is_configurable_model,
)
from langchain_reasc.models.integrations import Integration, integration_of

PASSED_THROUGH: Final = ("model_kwargs", "extra_body")
"""Dicts that chat models pass to the provider unread. ``extra_body`` overrides
everything else.
"""
AnyRunnable = Runnable[Any, Any]
T = TypeVar("T")
_KEPT: Final = 4


def wrapped_runnables(model: AnyRunnable) -> Sequence[AnyRunnable]:
    """Return what a wrapper holds: the bound model, the models that fall back on one
    another, the steps of a chain.
    """
    if isinstance(model, RunnableBindingBase):
        return [model.bound]
    if isinstance(model, RunnableWithFallbacks):
        return list(model.runnables)
    return model.steps if isinstance(model, RunnableSequence) else ()


def rewrap(model: AnyRunnable, new: Sequence[AnyRunnable]) -> AnyRunnable:
    """Return the same wrapper around others, as many as :func:`wrapped_runnables`
    returns.
    """
    first, *rest = new
    if isinstance(model, RunnableBindingBase):
        return model.model_copy(update={"bound": first})
    if isinstance(model, RunnableWithFallbacks):
        return model.model_copy(update={"runnable": first, "fallbacks": rest})
    # A sequence has two steps or more.
    assert isinstance(model, RunnableSequence)
    return model.model_copy(
        update={"first": first, "middle": rest[:-1], "last": rest[-1]}
    )


@dataclass(frozen=True)
class Leaf:
    """A chat model inside its wrappers.

    Attributes:
        model: the chat model.
        arguments: what its wrappers bind to its calls.
        reached: whether it gets the arguments of a call; a step of a chain does not.
    """

    model: BaseChatModel
    arguments: Mapping[str, Any]
    reached: bool = True

    @cached_property
    def integration(self) -> Integration:
        """How it is sampled."""
        return integration_of(self.model)

    @cached_property
    def seed(self) -> Any:
        """The seed that the user set."""
        name = self.integration.seed
        return self.given(name if isinstance(name, str) else "seed")

    @property
    def moves_seed(self) -> bool:
        """Whether a call can be given another seed."""
        name = self.integration.seed
        if name is None or not self.reached:
            return False
        # ``extra_body`` overrides the arguments of the call.
        body = self.arguments.get("extra_body", getattr(self.model, "extra_body", None))
        if callable(name):
            name = "seed"
        return not isinstance(body, Mapping) or name not in body

    def given(self, name: str) -> Any:
        """Return the value that the user set for the call, on the model, or in the
        dicts that it passes on unread.
        """
        arguments = self.arguments
        options = self.integration.options
        if name in arguments:
            return arguments[name]
        # Ollama's options of a call replace all fields of the model.
        if options and arguments.get(options) is not None:
            return arguments[options].get(name)
        value = getattr(self.model, name, None)
        if value is not None:
            return value
        for holder in PASSED_THROUGH:
            settings = arguments.get(holder, getattr(self.model, holder, None))
            if isinstance(settings, Mapping) and settings.get(name) is not None:
                return settings[name]
        return None


def leaves(model: AnyRunnable, arguments: Mapping[str, Any]) -> Iterator[Leaf]:
    """Yield the chat models inside retries, bindings, fallbacks and chains, the first
    choice first.
    """
    if isinstance(model, BaseChatModel):
        yield Leaf(model, arguments)
    elif isinstance(model, RunnableSequence):
        for step in model.steps:
            # The arguments of a call go to the first step only, which seldom is the
            # model.
            for leaf in leaves(step, {}):
                yield replace(leaf, reached=False)
    else:
        bound = model.kwargs if isinstance(model, RunnableBindingBase) else {}
        for inner in wrapped_runnables(model):
            yield from leaves(inner, {**bound, **arguments})


def name_of_model(model: BaseChatModel) -> str | None:
    """Return the name of a chat model, as its provider knows it; None if it has none."""
    # ChatOpenAI calls the field model_name, ChatAnthropic model.
    for field in ("model_name", "model", "model_id"):
        name = getattr(model, field, None)
        if isinstance(name, str) and name:
            return name
    return None


def streams(model: AnyRunnable) -> bool:
    """Return whether a response can be read as a stream."""
    if isinstance(model, BaseChatModel):
        # "tool_calling" switches off only the streams of calls with tools.
        return model.disable_streaming is not True
    wrapped = () if isinstance(model, RunnableSequence) else wrapped_runnables(model)
    return bool(wrapped) and all(map(streams, wrapped))


def is_configurable(model: AnyRunnable) -> bool:
    """Return whether what a model is depends on the config of its calls."""
    return next(_configurable_parts(model), None) is not None


class PerConfig(Generic[T]):
    """Makes a thing of a configurable model for each config, and keeps the last few.
    Safe to use from many threads.

    Args:
        model: the model as the user gave it.
        make: makes the thing of the model as it is under a config.
    """

    def __init__(self, model: AnyRunnable, make: Callable[[AnyRunnable], T]) -> None:
        self._model = model
        self._make = make
        self._keys = _keys(model)
        self._made: list[tuple[dict[str, Any], T]] = []
        self._lock = threading.Lock()

    def under(self, config: RunnableConfig) -> T:
        """Return the thing made of the model under this config.

        Raises:
            ConfigurationError: there is no such model.
        """
        configurable = {**(config.get("configurable") or {})}
        settings = configurable
        if self._keys is not None:
            names = configurable.keys() & self._keys
            settings = {name: configurable[name] for name in names}
        # Threads with the same config wait for one model, and share it.
        with self._lock:
            for index, entry in enumerate(self._made):
                if entry[0] == settings:
                    del self._made[index]
                    break
            else:
                entry = settings, self._make(self._resolved(configurable))
            self._made = [entry, *self._made][:_KEPT]
        return entry[1]

    def _resolved(self, configurable: dict[str, Any]) -> AnyRunnable:
        cause: Exception | None = None
        try:
            # In a context of its own, or callbacks of the run above would be bound to
            # the model.
            return Context().run(_resolve, self._model, {"configurable": configurable})
        except ConfigurationError:
            raise
        except ValidationError as error:
            # The error itself would show the values, API keys too.
            reason = "; ".join(findings(error, values=False))
        except Exception as error:
            reason = str(error)
            cause = error
        names = ", ".join(sorted(configurable)) or "nothing"
        raise ConfigurationError(
            "there is no model under this call's config, whose 'configurable' has "
            f"{names}: {reason}"
        ) from cause


def _resolve(model: AnyRunnable, config: RunnableConfig) -> AnyRunnable:
    """The model as it is under a config, wrapped as before, with nothing left to
    configure.
    """
    if isinstance(model, DynamicRunnable):
        # An alternative may be configurable in turn.
        chosen, own_config = model.prepare(config)
        return _resolve(chosen, own_config).with_config(own_config)
    if is_configurable_model(model):
        return _resolve(configured_model(model, config), config)
    if isinstance(model, RunnableBindingBase):
        config = merge_configs(model.config, config)
    wrapped = wrapped_runnables(model)
    if wrapped:
        return rewrap(model, [_resolve(inner, config) for inner in wrapped])
    return model


def _configurable_parts(model: Any) -> Iterator[Any]:
    """Yield what a call's config chooses or sets in a model and in everything inside
    it.
    """
    if not isinstance(model, Runnable):
        return
    parts = wrapped_runnables(model)
    if isinstance(model, DynamicRunnable):
        yield model
        parts = [model.default, *_alternatives(model)]
    elif is_configurable_model(model):
        yield model
    for part in parts:
        yield from _configurable_parts(part)


def _keys(model: AnyRunnable) -> frozenset[str] | None:
    """The names in a config that matter to a model; None if that cannot be told."""
    names: set[str] = set()
    kinds = set()
    for part in _configurable_parts(model):
        kinds.add(isinstance(part, DynamicRunnable))
        if not isinstance(part, DynamicRunnable):
            keys: Set[str] | None = configured_keys(part)
        elif all(isinstance(choice, Runnable) for choice in _alternatives(part)):
            keys = {spec.id for spec in part.config_specs}
        else:
            # Some alternatives are functions, which make their model in the call.
            keys = None
        if keys is None:
            return None
        names |= keys
    return frozenset(names) if len(kinds) < 2 else None


def _alternatives(model: DynamicRunnable[Any, Any]) -> Sequence[Any]:
    return tuple(getattr(model, "alternatives", {}).values())
