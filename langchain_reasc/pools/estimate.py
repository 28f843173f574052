"""What a recording will cost, told before it begins: from what is known by then, and how surely."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable

from langchain_reasc.data.questions import LabelledQuestion
from langchain_reasc.data.template import Template
from langchain_reasc.models.integrations import integration_of
from langchain_reasc.models.prepared import PreparedModel
from langchain_reasc.models.usage import tokens_of_text
from langchain_reasc.pools.bill import Bill, QuestionCost

__all__ = ["Estimate", "estimate", "model_limit"]

_COUNTED: Final = 256  # prompts that are counted; the others go by their length
_LEAST: Final = 3  # questions from which a spread can be told
_LEVEL: Final = 0.975


@dataclass(frozen=True, slots=True)
class Estimate:
    """Tokens that are still to be paid for.

    Attributes:
        questions: how many are asked.
        responses: how many are drawn.
        prompt: prompt tokens.
        prompt_by: ``recorded``: as of the prompts that were asked already; ``tokenizer``: by the model's own;
            ``characters``: four a token, which is right by a quarter or so in English.
        completion: generated tokens; None where nothing tells.
        completion_by: ``recorded``: as long as the responses so far; ``limit``: all as long as they may be, at most.
        basis: the recorded questions that this rests on.
        spread: half the width of the 95 % interval of ``completion``, relative to it; None where it is not known.
    """

    questions: int
    responses: int
    prompt: int
    prompt_by: Literal["recorded", "tokenizer", "characters"]
    completion: int | None
    completion_by: Literal["recorded", "limit"] | None
    basis: int = 0
    spread: float | None = None

    @property
    def bill(self) -> Bill:
        """As a bill, in which what is not known is nothing."""
        return Bill(responses=self.responses, prompt=self.prompt, completion=self.completion or 0)

    @property
    def is_expected(self) -> bool:
        """Whether it is what is to be expected, and no upper bound, nor the half of it."""
        return self.completion_by == "recorded" or not self.responses


def estimate(
    model: Runnable[LanguageModelInput, Any],
    questions: Sequence[LabelledQuestion],
    draws: Mapping[str, int],
    template: Template,
    *,
    costs: Sequence[QuestionCost] = (),
) -> Estimate:
    """What it takes to draw responses.

    Args:
        model: the chat model.
        questions: all questions, those included that are recorded.
        draws: id -> how many responses are still to be drawn.
        template: what stands around each question, a system message included.
        costs: what those recorded already have cost.
    """
    lengths = {one.id: _length(template.messages(one.input)) for one in questions}
    missing = [one for one in questions if draws.get(one.id)]
    drawn = sum(draws[one.id] for one in missing)
    prompt, prompt_by = _prompt_tokens(model, missing, draws, template, lengths, costs)
    completion, completion_by, spread = None, None, None
    if costs:
        mean, spread = _mean_and_spread([cost.completion for cost in costs], [cost.responses for cost in costs])
        completion, completion_by = round(mean * drawn), "recorded"
    elif (limit := model_limit(model)) is not None:
        completion, completion_by = limit * drawn, "limit"
    return Estimate(
        questions=len(missing),
        responses=drawn,
        prompt=prompt,
        prompt_by=prompt_by,
        completion=completion,
        completion_by=completion_by,  # type: ignore[arg-type]  # one of the two words above
        basis=len(costs),
        spread=spread,
    )


def model_limit(model: Runnable[LanguageModelInput, Any] | PreparedModel) -> int | None:
    """Tokens that a response of the model has at most, where it is set; None where nobody set any."""
    source = model if isinstance(model, PreparedModel) else PreparedModel.of(model)
    names = ("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "num_predict")
    given = (source.kwargs.get(name, getattr(source.model, name, None)) for name in names)
    return next((value for value in given if isinstance(value, int) and value > 0), None)


def _prompt_tokens(
    model: Runnable[LanguageModelInput, Any],
    missing: Sequence[LabelledQuestion],
    draws: Mapping[str, int],
    template: Template,
    lengths: Mapping[str, int],
    costs: Sequence[QuestionCost],
) -> tuple[int, Literal["recorded", "tokenizer", "characters"]]:
    characters = sum(lengths[one.id] * draws[one.id] for one in missing)
    count = _own_counter(model)
    if count is not None and missing:
        some = missing[:: -(-len(missing) // _COUNTED)]
        tokens = sum(count(template.messages(one.input)) for one in some)
        return round(characters * tokens / max(1, sum(lengths[one.id] for one in some))), "tokenizer"
    known = [cost for cost in costs if cost.prompt and cost.id in lengths]
    if known:
        told = sum((cost.prompt or 0) * cost.responses for cost in known)
        return round(characters * told / sum(lengths[cost.id] * cost.responses for cost in known)), "recorded"
    return tokens_of_text(characters), "characters"


def _own_counter(model: Runnable[LanguageModelInput, Any]) -> Callable[[list[BaseMessage]], int] | None:
    """The model's own count of a prompt's tokens, where it asks nobody for it."""
    source = PreparedModel.of(model).model
    if not isinstance(source, BaseChatModel):
        return None
    if source.custom_get_token_ids:
        return lambda messages: sum(source.get_num_tokens(str(message.content)) for message in messages)
    return source.get_num_tokens_from_messages if integration_of(source).counts_tokens else None


def _length(messages: Sequence[BaseMessage]) -> int:
    return sum(len(str(message.content)) for message in messages)


def _mean_and_spread(values: Sequence[float], weights: Sequence[int]) -> tuple[float, float | None]:
    """The mean, and half of its 95 % interval relative to it (Student's t over questions)."""
    mean = sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)
    if len(values) < _LEAST or not mean:
        return mean, None
    from scipy.special import stdtrit

    error = statistics.stdev(values) / math.sqrt(len(values))
    return mean, float(stdtrit(len(values) - 1, _LEVEL)) * error / mean
