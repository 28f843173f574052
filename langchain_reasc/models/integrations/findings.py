"""What makes the samples of a model worthless or its confidence unreadable, said in words."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from langchain_core.runnables import Runnable

from langchain_reasc.models.integrations.integration import Integration
from langchain_reasc.models.integrations.preparation import Leaf, leaves
from langchain_reasc.models.integrations.registry import integration_of, is_known

__all__ = ["findings", "reason_for_no_logprobs", "reason_for_not_asking", "signals_of"]

_REGISTER: Final = "if it returns some, say so with langchain_reasc.models.integrations.register_integration"
_MIXED: Final = "the seed is the same for every sample, since models that fall back on one another name it differently"
_GREEDY: Final = 1e-6  # ChatGroq turns a temperature of 0 into 1e-8


def findings(model: Runnable[Any, Any], arguments: Mapping[str, Any], *, logprobs: bool) -> tuple[str, ...]:
    """What the caller should know of how a model was set up, each once.

    Args:
        model: the model as the user gave it.
        arguments: what is bound to its calls.
        logprobs: whether confidences will be read.
    """
    found: dict[str, None] = {}  # an ordered set
    every = list(leaves(model, arguments))
    for leaf in every:
        integration, name = integration_of(leaf.model), type(leaf.model).__name__
        found |= dict.fromkeys(f"{name}: {finding}" for finding in _of_sampling(leaf, integration))
        if logprobs:
            found |= dict.fromkeys(f"{name}: {finding}" for finding in _of_logprobs(leaf, integration))
    if len({integration_of(leaf.model).seed for leaf in every}) > 1 and any(_seed(leaf) is not None for leaf in every):
        found |= {_MIXED: None}
    return tuple(found)


def reason_for_no_logprobs(model: Runnable[Any, Any], arguments: Mapping[str, Any]) -> str | None:
    """Why no confidence can come from a model, where that is known before anything is paid for."""
    reasons = [
        f"{type(leaf.model).__name__} returns no logprobs: {why}; {_REGISTER}"
        if (why := integration_of(leaf.model).no_logprobs)
        else None
        for leaf in leaves(model, arguments)
    ]
    return reasons[0] if reasons and all(reasons) else None


def reason_for_not_asking(model: Runnable[Any, Any], arguments: Mapping[str, Any]) -> str | None:
    """Why a model is not asked for logprobs, which it might return all the same: nobody knows its class."""
    every = [leaf.model for leaf in leaves(model, arguments)]
    if every and all(integration_of(one).logprobs is None and not is_known(one) for one in every):
        return (
            f"{type(every[0]).__name__} was not asked for them, since it is not known and has no fields named logprobs "
            f"and top_logprobs; {_REGISTER}, or bind what asks for them"
        )
    return None


def signals_of(model: Runnable[Any, Any], arguments: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The token signals that can be had of a model, those of most use first; None where that is not known."""
    every = [leaf for leaf in leaves(model, arguments)]
    if not every or not all(map(is_known, (leaf.model for leaf in every))):
        return None
    each = [_signals(leaf) for leaf in every]
    return tuple(name for name in each[0] if all(name in other for other in each))


def _signals(leaf: Leaf) -> tuple[str, ...]:
    own = getattr(leaf.model, "signals", None)
    if isinstance(own, Sequence) and own:  # a model of ours, which computes them itself
        return tuple(map(str, own))
    return () if integration_of(leaf.model).logprobs is None else ("top_k", "token_logprob", "neg_entropy")


def _of_sampling(leaf: Leaf, integration: Integration) -> Iterator[str]:
    for name, greedy in (("temperature", _GREEDY), ("top_p", _GREEDY), ("top_k", 1)):
        value = _number(integration.given(leaf.model, leaf.arguments, name))
        if value is not None and 0 <= value <= greedy and (name != "top_k" or value == 1):
            yield (
                f"{name}={value:g} makes every sample the same, so sampling adds cost and no evidence; "
                "sample at a temperature of about 0.7"
            )
    n = _number(integration.given(leaf.model, leaf.arguments, integration.n)) if integration.n else None
    if n is not None and n > 1:
        yield f"n={n:g} was set aside; every sample is a request of its own, so that it can be cut off"
    seed = _seed(leaf)
    if seed is not None and (integration.seed is None or not leaf.reached or _fixed_below(leaf, integration)):
        yield f"seed={seed} cannot be moved on from sample to sample, which makes them all the same; leave it out"


def _of_logprobs(leaf: Leaf, integration: Integration) -> Iterator[str]:
    if integration.no_logprobs:
        yield f"no confidence: {integration.no_logprobs}"


def _seed(leaf: Leaf) -> Any:
    integration = integration_of(leaf.model)
    return integration.given(leaf.model, leaf.arguments, integration.seed_name or "seed")


def _fixed_below(leaf: Leaf, integration: Integration) -> bool:
    """Whether the seed stands in ``extra_body``, which is laid over what the call says."""
    body = leaf.arguments.get("extra_body", getattr(leaf.model, "extra_body", None))
    return isinstance(body, Mapping) and integration.seed_name in body


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
