"""Which settings of one chat model's calls another chat model understands.

LangChain's chat models hand settings that they do not know to their provider's client,
which raises a TypeError. So a setting written for one model goes to another only if
that knows it, too.
"""

import inspect
from collections.abc import Container, Iterable, Mapping
from typing import Any, Final

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from langchain_reasc.models.wrappers import AnyRunnable, Leaf, leaves

NEUTRAL: Final = frozenset(
    {
        "stop",
        "tools",
        "tool_choice",
        "response_format",
        "ls_structured_output_format",
        "structured_output_format",
    }
)
"""Settings that have the same meaning for the chat models of all providers."""
_CACHE_MARK: Final = "cache_control"


def share_a_client(source: Iterable[Leaf], target: Iterable[Leaf]) -> bool:
    """Return whether settings for the first model in ``source`` suit every model in
    ``target``.

    They do if both have a class of chat models in common, as ``ChatOpenAI`` and
    ``AzureChatOpenAI`` have ``BaseChatOpenAI``.
    """
    first = next(iter(source), None)
    target = list(target)
    if first is None or not target:
        return False
    return all(_are_related(first.model, leaf.model) for leaf in target)


def _are_related(first: BaseChatModel, second: BaseChatModel) -> bool:
    shared = {*type(first).__mro__} & {*type(second).__mro__}
    return any(
        issubclass(kind, BaseChatModel) and kind is not BaseChatModel for kind in shared
    )


def bindable(
    settings: Mapping[str, Any],
    written_for: AnyRunnable,
    model: AnyRunnable,
    method: str,
) -> dict[str, Any]:
    """Return the settings that a chat model's method for binding understands.

    Args:
        settings: keyword arguments of the method.
        written_for: the model that they were given for.
        model: the chat model, or a ReASC model around it.
        method: ``bind_tools`` or ``with_structured_output``.
    """
    sampled = list(leaves(getattr(model, "sampled", model), {}))
    if share_a_client(leaves(written_for, {}), sampled):
        return dict(settings)
    kind = type(sampled[0].model) if sampled else type(model)
    # The method hands settings that it does not name to the provider's client.
    names = NEUTRAL | inspect.signature(getattr(kind, method)).parameters.keys()
    return {name: value for name, value in settings.items() if name in names}


def without_cache_marks(messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """Return messages without the marks for Anthropic's prompt cache, which other
    providers refuse.
    """
    unmarked = []
    for message in messages:
        if isinstance(message.content, list):
            content = []
            for block in message.content:
                if isinstance(block, dict):
                    block = without(block, {_CACHE_MARK})
                content.append(block)
            message = message.model_copy(update={"content": content})
        unmarked.append(message)
    return unmarked


def without(fields: Mapping[str, Any], names: Container[str]) -> dict[str, Any]:
    """Return the settings, the metadata or the block without these names."""
    return {name: value for name, value in fields.items() if name not in names}
