"""What is known of a class of chat models: how it is asked for logprobs, and what makes its samples differ."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from langchain_core.language_models import BaseChatModel

__all__ = ["PASSED_ON", "Integration", "MovedSeed"]

PASSED_ON: Final = ("model_kwargs", "extra_body")
"""Fields and arguments whose dicts models send on unread; what stands in ``extra_body`` wins over all else."""

MovedSeed = Callable[[BaseChatModel, Mapping[str, Any], int], dict[str, Any]]
"""(model, arguments of the call, seed) -> the arguments that give the call this seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Integration:
    """How the chat models of one class are sampled and asked for the probabilities of their tokens.

    Names are those of the class's fields; where it has no such field, they are arguments of each call. The defaults are
    those of OpenAI's chat API.

    Attributes:
        logprobs: asks for log-probabilities; None where none can be had.
        no_logprobs: why none can be had.
        top_logprobs: asks for alternatives; None where ``logprobs`` itself takes their number.
        max_top_logprobs: the most alternatives per token that the provider gives.
        streams_logprobs: whether they survive streaming; if not, responses are taken whole, and run to their end.
        n: asks for several responses in one request; None where nothing does.
        seed: sets the random seed, so that it can be moved on from sample to sample: a name, or a function for where
            that does not do; None where nothing sets it.
        options: an argument of a call whose dict stands in place of the fields, as Ollama's ``options``.
        arguments: what every call is given besides, name -> value.
        own_copy: whether each sample gets a copy of the model to itself, since a call may leave on the model what
            another, made at the same time, reads there. False where that is known not to happen, and where calls are
            to find what others left: a count of calls, as in LangChain's fakes, by which they say something else each
            time.
        names_end: whether each stream ends with a reason, such as ``finish_reason``. One without was broken off, though
            HTTP took it for whole, and its sample fails.
        counts_tokens: whether ``get_num_tokens_from_messages`` counts a prompt by the model's own tokenizer without
            asking anybody: most classes ask their provider, or fetch a table from the net.
    """

    logprobs: str | None = "logprobs"
    no_logprobs: str | None = None
    top_logprobs: str | None = "top_logprobs"
    max_top_logprobs: int = 20
    streams_logprobs: bool = True
    n: str | None = "n"
    seed: str | MovedSeed | None = "seed"
    options: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    own_copy: bool = True
    names_end: bool = False
    counts_tokens: bool = False

    @property
    def seed_name(self) -> str | None:
        """What a user calls the seed."""
        return "seed" if callable(self.seed) else self.seed

    def given(self, model: BaseChatModel, arguments: Mapping[str, Any], name: str) -> Any:
        """What the user set ``name`` to: for the call, on the model, or in the dicts that models pass on unread."""
        if name in arguments:
            return arguments[name]
        if self.options and arguments.get(self.options) is not None:
            return arguments[self.options].get(name)
        for value in (getattr(model, name, None), _inside(arguments, model, "model_kwargs", name)):
            if value is not None:
                return value
        return _inside(arguments, model, "extra_body", name)

    def asked(self, model: BaseChatModel, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """What has to be added so that the model returns logprobs, with as many alternatives as it can.

        A number the user chose is kept, and so is ``logprobs=False`` of the call.
        """
        if self.logprobs is None or arguments.get(self.logprobs, True) is False:
            return {}
        wanted = self.given(model, arguments, self.logprobs)
        count = self.given(model, arguments, self.top_logprobs or "top_logprobs")
        if self.top_logprobs is None:
            number = wanted if isinstance(wanted, int) and not isinstance(wanted, bool) else count
            return {self.logprobs: self.max_top_logprobs if number is None else number}
        asked: dict[str, Any] = {} if wanted else {self.logprobs: True}
        return asked if count is not None else {**asked, self.top_logprobs: self.max_top_logprobs}


def _inside(arguments: Mapping[str, Any], model: BaseChatModel, holder: str, name: str) -> Any:
    held = arguments.get(holder, getattr(model, holder, None))
    return held.get(name) if isinstance(held, Mapping) else None
