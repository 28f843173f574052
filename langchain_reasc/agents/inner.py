"""The chat model inside: what a model around it says of itself in its place."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableBinding, RunnableConfig, RunnableSequence
from langchain_core.runnables.base import RunnableBindingBase, RunnableParallel
from langchain_core.runnables.config import merge_configs

from langchain_reasc.answers import STRUCTURE
from langchain_reasc.models.wrappers import leaves

__all__ = [
    "chat_model_inside",
    "demands_call",
    "may_call_tools",
    "name_of",
    "rebound",
    "told_of",
    "unbound",
    "wants_structure",
    "with_inside",
]


def chat_model_inside(model: Runnable[Any, Any]) -> BaseChatModel | None:
    """The chat model that answers first, out of its bindings, retries and fallbacks; None where a config chooses it."""
    return next((leaf.model for leaf in leaves(model, {})), None)


def name_of(model: BaseChatModel) -> str:
    """The name of a chat model, as its provider knows it."""
    for field in ("model_name", "model", "model_id"):
        if isinstance(name := getattr(model, field, None), str) and name:
            return name
    return model.get_name()


def wants_structure(arguments: dict[str, Any]) -> bool:
    """Whether the arguments of a call ask for structured output in the text of the response."""
    return any(arguments.get(name) for name in STRUCTURE)


def told_of(model: Runnable[Any, Any]) -> dict[str, Any]:
    """The callbacks, tags and metadata of a model's runs: what is set on it, and what is bound around it."""
    config: RunnableConfig = {}
    while isinstance(model, RunnableBindingBase):
        config = merge_configs(model.config, config)
        model = model.bound
    names = ("callbacks", "tags", "metadata")
    own = cast(RunnableConfig, {name: getattr(model, name, None) for name in names})
    merged: dict[str, Any] = {**merge_configs(own, config)}
    return {name: merged.get(name) or None for name in names}


def demands_call(arguments: Mapping[str, Any]) -> bool:
    """Whether the arguments of a call want a tool to be called, whatever the model would say."""
    return _tool_choice(arguments) not in (None, False, "auto", "none")


def may_call_tools(model: Runnable[Any, Any], arguments: Mapping[str, Any]) -> bool:
    """Whether a response may call tools: some are bound to the model or set on it, and it is free to call them."""
    return _tool_choice(arguments) != "none" and any(
        leaf.given(name) for leaf in leaves(model, arguments) for name in ("tools", "functions")
    )


def _tool_choice(arguments: Mapping[str, Any]) -> Any:
    choice = arguments.get("tool_choice")
    return choice.get("type") if isinstance(choice, Mapping) else choice


def unbound(model: Runnable[Any, Any]) -> Runnable[Any, Any]:
    """A model without what was bound to it, and without its retries."""
    return unbound(model.bound) if isinstance(model, RunnableBindingBase) else model


def with_inside(model: Runnable[Any, Any], inside: Runnable[Any, Any]) -> Runnable[Any, Any]:
    """The model with another in place of its :func:`unbound` one, and all that was bound as it was."""
    if not isinstance(model, RunnableBindingBase):
        return inside
    return model.model_copy(update={"bound": with_inside(model.bound, inside)})


def rebound(
    chain: Runnable[Any, Any], around: Callable[[Runnable[Any, Any]], Runnable[Any, Any]]
) -> Runnable[Any, Any]:
    """What a chat model's ``bind_tools`` or ``with_structured_output`` made, with another model where it stood.

    Args:
        chain: the model with its arguments bound, or that with a parser behind.
        around: the model to put in place of the one found there.
    """
    if isinstance(chain, RunnableBinding):
        outer = around(chain.bound)
        return RunnableBinding(bound=outer, kwargs=dict(chain.kwargs), config=chain.config)
    if isinstance(chain, RunnableSequence):
        return chain.model_copy(update={"first": rebound(chain.first, around)})
    if isinstance(chain, RunnableParallel):
        steps = {name: rebound(step, around) if name == "raw" else step for name, step in chain.steps__.items()}
        return chain.model_copy(update={"steps__": steps})
    return around(chain)
