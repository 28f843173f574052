"""Which :class:`~langchain_reasc.models.integrations.Integration` a chat model goes by; users may add their own."""

from collections.abc import Callable
from functools import cache, lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, TypeVar

from langchain_core.language_models import BaseChatModel

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.models.integrations.integration import Integration
from langchain_reasc.models.integrations.known import KNOWN, unknown

__all__ = ["integration_of", "is_known", "register_integration"]

GROUP: Final = "langchain_reasc.integrations"
Describe = Callable[[Any], Integration]
"""From a model of the class to how it is to be sampled; the model's own settings may matter."""
DescribeT = TypeVar("DescribeT", bound=Describe)

_registered: dict[str, Describe] = {}


def register_integration(*class_paths: str) -> Callable[[DescribeT], DescribeT]:
    """Say how the chat models of a class, and of those derived from it, are sampled and asked for logprobs.

    It wins over what is known of the class. A package does the same for its users without being imported, by an entry
    point of the group ``langchain_reasc.integrations`` whose name is the class path.

    Args:
        *class_paths: ``package.Class`` or ``package.module.Class``. The package need not be installed.

    Raises:
        ConfigurationError: not a dotted path.

    Example:
        >>> @register_integration("my_package.ChatMine")
        ... def chat_mine(model):
        ...     return Integration(top_logprobs="alternatives", max_top_logprobs=5)
    """
    if not class_paths or not all(map(_is_class_path, class_paths)):
        raise ConfigurationError(f"an integration is registered by class paths, package.Class; got {class_paths!r}")

    def register(describe: DescribeT) -> DescribeT:
        _registered.update(dict.fromkeys(class_paths, describe))
        return describe

    return register


def integration_of(model: BaseChatModel) -> Integration:
    """How a chat model is sampled: by its class, the nearest base class that is known, or OpenAI's example.

    Raises:
        ConfigurationError: a registered function or an entry point failed, or returned something else.
    """
    for path in _paths(type(model)):
        if path in _registered:
            return _described(_registered[path], model, path)
        if path in _entry_points():
            return _described(_loaded(_entry_points()[path]), model, path)
        if path in KNOWN:
            known = KNOWN[path]
            return known if isinstance(known, Integration) else known(model)
    return unknown(model)


def is_known(model: BaseChatModel) -> bool:
    """Whether the class of a model, or one of its bases, has an integration."""
    return any(path in _registered or path in _entry_points() or path in KNOWN for path in _paths(type(model)))


def _is_class_path(path: object) -> bool:
    return isinstance(path, str) and "." in path and all(part.isidentifier() for part in path.split("."))


@lru_cache(maxsize=256)
def _paths(kind: type) -> tuple[str, ...]:
    """The names of a class and of its bases, nearest first: modules move, and packages re-export their classes."""
    named = [(base.__module__.split("."), base.__qualname__) for base in kind.__mro__]
    return tuple(".".join([*parts[:depth], name]) for parts, name in named for depth in range(len(parts), 0, -1))


@cache
def _entry_points() -> dict[str, EntryPoint]:
    return {found.name: found for found in entry_points(group=GROUP)}


_entry_points()  # on import: it reads files, and a model may be prepared on an event loop


def _loaded(found: EntryPoint) -> Describe:
    try:
        loaded: Describe = found.load()
    except Exception as error:
        raise ConfigurationError(
            f"the entry point {found.name!r} = {found.value!r} of group {GROUP} does not load: {error!r}; "
            "reinstall or remove the package that brings it"
        ) from error
    return loaded


def _described(describe: Describe, model: BaseChatModel, path: str) -> Integration:
    try:
        described = describe(model)
    except Exception as error:
        raise ConfigurationError(f"what is registered for {path} failed: {error!r}") from error
    if not isinstance(described, Integration):
        raise ConfigurationError(
            f"what is registered for {path} must return an Integration, got {type(described).__name__}"
        )
    return described
