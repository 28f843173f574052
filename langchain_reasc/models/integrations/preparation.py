"""A model made safe to sample: a fresh response each time, with the probabilities that the decision reads."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, get_args

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableSequence, RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase

from langchain_reasc.models.contract import ParallelSampler
from langchain_reasc.models.cuttable import cuttable
from langchain_reasc.models.integrations.integration import PASSED_ON
from langchain_reasc.models.integrations.refused import AskedLogprobs, logprobs_memory
from langchain_reasc.models.integrations.registry import integration_of

__all__ = ["Leaf", "asks_for_logprobs", "leaves", "moved_seed", "prepared", "without_n"]


class Leaf(NamedTuple):
    """A chat model inside its wrappers.

    Attributes:
        model: the chat model.
        arguments: what its wrappers bind to its calls.
        reached: whether it gets the arguments of a call; a step of a chain does not.
    """

    model: BaseChatModel
    arguments: Mapping[str, Any]
    reached: bool = True


def leaves(model: Runnable[Any, Any], arguments: Mapping[str, Any]) -> Iterator[Leaf]:
    """The chat models inside retries, bindings, fallbacks and chains, the first choice first."""
    if isinstance(model, RunnableBindingBase):
        yield from leaves(model.bound, {**model.kwargs, **arguments})
    elif isinstance(model, RunnableSequence):
        for step in model.steps:
            yield from (leaf._replace(reached=False) for leaf in leaves(step, {}))
    elif isinstance(model, RunnableWithFallbacks):
        for one in model.runnables:
            yield from leaves(one, arguments)
    elif isinstance(model, BaseChatModel):
        yield Leaf(model, arguments)


def prepared(
    model: Runnable[Any, Any],
    arguments: Mapping[str, Any],
    *,
    logprobs: bool,
    required: bool = False,
    quiet: bool = False,
    live: bool = False,
    whole: bool = False,
) -> tuple[Runnable[Any, Any], dict[str, Any]]:
    """A copy that can be sampled, and the arguments to add to those of its calls.

    Args:
        model: a chat model, wrapped or not, with nothing left to configure; any other Runnable is left as it is.
        arguments: what is bound to its calls.
        logprobs: whether confidences will be read.
        required: whether a response without them is of no use; else a server that refuses them is asked without.
        quiet: whether the callbacks set on chat models are taken off.
        live: whether a response is passed on while it comes. Then also a model that samples in parallel in its own way
            is streamed, and one inside a wrapper.
        whole: whether its responses are taken whole, as those of a model inside a wrapper are. LangChain would still
            stream them inside, where a handler listens for tokens, and complete the arguments of calls cut in half.
    """
    inside = partial(prepared, logprobs=logprobs, required=required, quiet=quiet, live=live, whole=not live)
    if isinstance(model, RunnableBindingBase):  # a retry, say
        bound, added = inside(model.bound, {**model.kwargs, **arguments})
        return model.model_copy(update={"bound": bound, "kwargs": {**without_n(model.kwargs), **added}}), {}

    def ready(one: Any, given: Mapping[str, Any]) -> Any:
        """One of several models, which do not all take the same arguments."""
        copy, added = inside(one, given)
        return copy.bind(**added) if added else copy

    if isinstance(model, RunnableWithFallbacks):
        first, *others = (ready(one, arguments) for one in model.runnables)
        return model.model_copy(update={"runnable": first, "fallbacks": others}), {}
    if isinstance(model, RunnableSequence):
        first, *middle, last = (ready(step, {}) for step in model.steps)
        return model.model_copy(update={"first": first, "middle": middle, "last": last}), {}
    if not isinstance(model, BaseChatModel):
        return model, {}
    update, added = _changes(model, arguments, logprobs=logprobs, whole=whole)
    if quiet:
        update |= {"callbacks": None, "verbose": False}
    copy = model.model_copy(update=update)
    if isinstance(copy, ParallelSampler) and not live:
        return copy, added
    return cuttable(copy, _asked_logprobs(model, required=required) if logprobs else None), added


def asks_for_logprobs(model: Runnable[Any, Any], arguments: Mapping[str, Any]) -> bool:
    """Whether the user asked for logprobs, and not ReASC alone."""
    every = [(leaf, integration_of(leaf.model)) for leaf in leaves(model, arguments)]
    return any(one.logprobs and one.given(leaf.model, leaf.arguments, one.logprobs) for leaf, one in every)


def without_n(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a call for one response: several in one stream cannot be told apart, nor cut off one by one."""
    return {
        name: without_n(value) if name in PASSED_ON and isinstance(value, Mapping) else value
        for name, value in arguments.items()
        if name != "n"
    }


def moved_seed(model: Runnable[Any, Any], arguments: Mapping[str, Any], by: int) -> dict[str, Any]:
    """The arguments that move a seed on which is set, or all samples would be the same; none where it is not set.

    Models that fall back on one another must call the seed the same, since they get the same arguments.
    """
    found = [(leaf, integration_of(leaf.model)) for leaf in leaves(model, arguments)]
    if not found or len({one.seed for _, one in found}) > 1 or not all(leaf.reached for leaf, _ in found):
        return {}
    (first, integration), *_ = found
    if integration.seed is None or integration.seed_name is None:
        return {}
    seed = integration.given(first.model, first.arguments, integration.seed_name)
    if not isinstance(seed, int):
        return {}
    if callable(integration.seed):
        return integration.seed(first.model, first.arguments, seed + by)
    return {integration.seed: seed + by}


def _changes(
    model: BaseChatModel, arguments: Mapping[str, Any], *, logprobs: bool, whole: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields to change on a copy of a model, and the arguments to add to its calls."""
    integration, fields = integration_of(model), type(model).model_fields
    update: dict[str, Any] = {"cache": False}  # the global cache would return one sample n times
    if "stream_usage" in fields:
        update["stream_usage"] = True
    if integration.n and isinstance(getattr(model, integration.n, None), int):
        update[integration.n] = 1
    passed_on: dict[str, Any] = {name: getattr(model, name) for name in PASSED_ON if name in fields}
    update |= {name: value for name, value in without_n(passed_on).items() if value != passed_on[name]}
    added = {name: value for name, value in integration.arguments.items() if name not in arguments}
    if whole or (logprobs and not integration.streams_logprobs):
        update |= {"disable_streaming": True, **({"streaming": False} if "streaming" in fields else {})}
    if not logprobs:
        return update, added
    asked = integration.asked(model, arguments)
    by_field = {name for name, value in asked.items() if name in fields and _fits(fields[name].annotation, value)}
    update |= {name: asked[name] for name in by_field}
    return update, {**added, **{name: value for name, value in asked.items() if name not in by_field}}


def _asked_logprobs(model: BaseChatModel, *, required: bool) -> AskedLogprobs | None:
    """What asks a model for logprobs, in case its server refuses."""
    integration, fields = integration_of(model), type(model).model_fields
    names = frozenset(name for name in (integration.logprobs, integration.top_logprobs) if name)
    if integration.logprobs is None:
        return None
    unasked = {name: fields[name].get_default(call_default_factory=True) for name in names & fields.keys()}
    return AskedLogprobs(logprobs_memory(model), names, unasked, required=required)


def _fits(annotation: Any, value: Any) -> bool:
    """Whether a field takes a value: one that says yes or no takes no number in place of yes."""
    return isinstance(value, bool) or int in (annotation, *get_args(annotation))
