"""Models that are chosen or set by a call's config: what they are under a given one.

LangChain has two kinds: ``configurable_fields`` and ``configurable_alternatives`` of any Runnable, and what
``init_chat_model(..., configurable_fields=...)`` returns. The latter makes a new chat model for every single call.
"""

import threading
from collections.abc import Callable, Iterator
from contextvars import Context
from typing import Any, Final, Generic, TypeVar, cast

from langchain_core.runnables import Runnable, RunnableConfig, RunnableSequence, RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.config import merge_configs
from langchain_core.runnables.configurable import DynamicRunnable, RunnableConfigurableAlternatives
from pydantic import ValidationError

from langchain_reasc.complaints import findings
from langchain_reasc.exceptions import ConfigurationError

__all__ = ["PerConfig", "is_configurable", "resolved"]

_KEPT: Final = 4
T = TypeVar("T")
AnyRunnable = Runnable[Any, Any]


class PerConfig(Generic[T]):
    """What is made of a configurable model, for each config; the last few are kept. Safe to use from many threads."""

    def __init__(self, model: AnyRunnable, make: Callable[[AnyRunnable], T]) -> None:
        """Make nothing yet.

        Args:
            model: the model as the user gave it.
            make: makes what is wanted of the model as it is under a config.
        """
        self._model, self._make, self._keys = model, make, _keys(model)
        self._made: list[tuple[dict[str, Any], T]] = []
        self._lock = threading.Lock()

    def under(self, config: RunnableConfig) -> T:
        """What is made of the model under this config.

        Raises:
            ConfigurationError: there is no such model.
        """
        given = {**(config.get("configurable") or {})}
        settings = given if self._keys is None else {name: given[name] for name in given.keys() & self._keys}
        with self._lock:
            found = next((held for held in self._made if held[0] == settings), None)
            if found is None:
                found = settings, self._make(_checked(self._model, given))
            self._made = [found, *(held for held in self._made if held is not found)][:_KEPT]
        return found[1]


def is_configurable(model: AnyRunnable) -> bool:
    """Whether what a model is depends on the config of its calls."""
    return any(_is_dynamic(one) for one in _walk(model))


def resolved(model: AnyRunnable, config: RunnableConfig) -> AnyRunnable:
    """The model as it is under a config, wrapped as before, with nothing left to configure."""
    if isinstance(model, DynamicRunnable):
        chosen, own = model.prepare(config)
        return resolved(chosen, own).with_config(own)
    if _is_langchain_s(model):
        return resolved(cast(Any, model)._model(config), config)
    if isinstance(model, RunnableBindingBase):
        below = merge_configs(model.config, config)
        return cast(AnyRunnable, model.model_copy(update={"bound": resolved(model.bound, below)}))
    if isinstance(model, RunnableWithFallbacks):
        first, *others = (resolved(one, config) for one in model.runnables)
        return model.model_copy(update={"runnable": first, "fallbacks": others})
    if isinstance(model, RunnableSequence):
        first, *middle, last = (resolved(step, config) for step in model.steps)
        return model.model_copy(update={"first": first, "middle": middle, "last": last})
    return model


def _checked(model: AnyRunnable, configurable: dict[str, Any]) -> AnyRunnable:
    cause: Exception | None = None
    try:
        # In a context of its own, or callbacks of the run above would be bound to the model.
        return Context().run(resolved, model, {"configurable": configurable})
    except ConfigurationError:
        raise
    except ValidationError as error:  # whose text would show the values, API keys too
        why = "; ".join(findings(error, values=False))
    except Exception as error:
        why, cause = str(error), error
    named = ", ".join(sorted(configurable)) or "nothing"
    raise ConfigurationError(
        f"there is no model under this call's config, whose 'configurable' has {named}: {why}"
    ) from cause


def _walk(model: Any) -> Iterator[AnyRunnable]:
    """A model and everything inside it that may be configurable."""
    if not isinstance(model, Runnable):
        return
    yield model
    inside: list[Any] = []
    if isinstance(model, DynamicRunnable):
        inside = [model.default, *getattr(model, "alternatives", {}).values()]
    elif isinstance(model, RunnableBindingBase):
        inside = [model.bound]
    elif isinstance(model, RunnableWithFallbacks):
        inside = list(model.runnables)
    elif isinstance(model, RunnableSequence):
        inside = model.steps
    for one in inside:
        yield from _walk(one)


def _keys(model: AnyRunnable) -> frozenset[str] | None:
    """The names in a config that matter to a model; None where that cannot be told."""
    dynamic = [one for one in _walk(model) if isinstance(one, DynamicRunnable)]
    langchain_s: list[Any] = [one for one in _walk(model) if _is_langchain_s(one)]
    made_when_called = any(
        not isinstance(other, Runnable)
        for one in dynamic
        if isinstance(one, RunnableConfigurableAlternatives)
        for other in one.alternatives.values()
    )
    if made_when_called or (dynamic and langchain_s) or any(one._configurable_fields == "any" for one in langchain_s):
        return None
    fields = {f"{one._config_prefix}{name}" for one in langchain_s for name in one._configurable_fields}
    return frozenset(fields | {spec.id for one in dynamic for spec in one.config_specs})


def _is_dynamic(model: AnyRunnable) -> bool:
    return isinstance(model, DynamicRunnable) or _is_langchain_s(model)


def _is_langchain_s(model: AnyRunnable) -> bool:
    """Whether it is what ``init_chat_model`` returns; known by name, since langchain need not be installed."""
    return any(kind.__name__ == "_ConfigurableModel" and hasattr(kind, "_model") for kind in type(model).__mro__)
