"""Bind tools or a schema to the chat models inside wrappers, and put ReASC in place of
a bound model.
"""

from collections.abc import Callable, Iterable
from typing import Any

from langchain_core.runnables import RunnableSequence
from langchain_core.runnables.base import RunnableBindingBase, RunnableParallel

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.models.wrappers import (
    AnyRunnable,
    leaves,
    rewrap,
    wrapped_runnables,
)


def unbound(model: AnyRunnable) -> AnyRunnable:
    """Return a model without its bindings and retries."""
    while isinstance(model, RunnableBindingBase):
        model = model.bound
    return model


def with_inner(model: AnyRunnable, inner: AnyRunnable) -> AnyRunnable:
    """Return the model with another in place of its :func:`unbound` one, and the same
    bindings.
    """
    if not isinstance(model, RunnableBindingBase):
        return inner
    return model.model_copy(update={"bound": with_inner(model.bound, inner)})


def with_bound(model: AnyRunnable, bind: Callable[[Any], Any]) -> AnyRunnable:
    """Return a model with arguments bound to each chat model in it, in that model's
    form.

    Args:
        model: a chat model, or wrappers around some: bindings, retries, fallbacks,
            chains.
        bind: binds them to a chat model. A parser that it puts behind the model is left
            out.

    Raises:
        ConfigurationError: there is no chat model in it, or only the config of a call
            says which.
    """
    if hasattr(type(model), "bind_tools"):
        bound: AnyRunnable = first_binding(bind(model))
        return bound
    if isinstance(model, RunnableSequence):
        steps = []
        for step in model.steps:
            has_model = any(leaves(step, {}))
            steps.append(with_bound(step, bind) if has_model else step)
        return rewrap(model, steps)
    wrapped = wrapped_runnables(model)
    if wrapped:
        return rewrap(model, [with_bound(inner, bind) for inner in wrapped])
    raise ConfigurationError(
        f"tools and schemas are bound to a chat model, and {model.get_name()} is none; "
        "bind them to each chat model in it, before that is given to ReASC"
    )


def first_binding(chain: AnyRunnable) -> Any:
    """Return the model with its arguments bound, in what ``bind_tools`` or
    ``with_structured_output`` made.
    """
    while isinstance(chain, RunnableSequence | RunnableParallel):
        if isinstance(chain, RunnableSequence):
            chain = chain.first
        else:
            chain = chain.steps__["raw"]
    return chain


def replace_model(
    chain: AnyRunnable, new: Callable[[AnyRunnable], AnyRunnable]
) -> AnyRunnable:
    """Return what a chat model's ``bind_tools`` or ``with_structured_output`` made,
    around another model.

    Args:
        chain: the model with its arguments bound, or that with a parser behind.
        new: given the :func:`first_binding`, returns the one to put in its place.
    """
    if isinstance(chain, RunnableSequence):
        return chain.model_copy(update={"first": replace_model(chain.first, new)})
    if isinstance(chain, RunnableParallel):
        steps = dict(chain.steps__)
        steps["raw"] = replace_model(steps["raw"], new)
        return chain.model_copy(update={"steps__": steps})
    return new(chain)


def one_method(models: Iterable[AnyRunnable | None]) -> dict[str, Any]:
    """Return the method of structured output that one parser reads of all these models;
    empty for their own.
    """
    kinds: set[type[Any]] = set()
    for model in models:
        if model is not None:
            kinds.update(type(leaf.model) for leaf in leaves(model, {}))
    if len(kinds) > 1:
        return {"method": "function_calling"}
    return {}
