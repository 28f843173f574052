"""What a recording has cost: tokens as their provider counts them, and what it does not tell."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from langchain_reasc.models.contract import FAILED_ATTEMPTS, RECEIVED_TOKENS
from langchain_reasc.models.usage import is_count, is_estimated, output_tokens, reported_usage
from langchain_reasc.pools.overflow import is_overflow
from langchain_reasc.pools.pool import PoolQuestion, PoolResponse
from langchain_reasc.sampling import Sample

__all__ = ["Bill", "QuestionCost", "Tally", "cost_of"]


@dataclass(frozen=True, slots=True)
class Bill:
    """Tokens that were paid for; two bills add up.

    Attributes:
        responses: that came to their end.
        prompt: prompt tokens, ``cached`` and ``cache_written`` among them.
        completion: generated tokens, ``reasoning`` and ``lost`` among them.
        cached: prompt tokens that the provider read from its cache.
        cache_written: those that it wrote to one.
        reasoning: generated tokens of a reasoning that is not shown, or apart.
        failed: samples and requests that gave no response, as far as they are known.
        lost: what had come of them before they failed; their prompts are counted where their usage came.
        without_usage: responses whose provider said nothing of what they cost. Their tokens are counted from what
            arrived, and their prompt as for the others of their question, where there is one.
    """

    responses: int = 0
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    cache_written: int = 0
    reasoning: int = 0
    failed: int = 0
    lost: int = 0
    without_usage: int = 0

    def __add__(self, other: "Bill") -> "Bill":
        return Bill(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def tokens(self) -> int:
        """All tokens."""
        return self.prompt + self.completion

    @classmethod
    def of_samples(cls, samples: Sequence[Sample]) -> "Bill":
        """What samples of one question cost, those that failed included."""
        usages = [reported_usage(sample.message) for sample in samples]
        prompt = max((usage["input_tokens"] for usage in usages if usage), default=0)
        return sum((_of_sample(sample, prompt) for sample in samples), cls())

    @classmethod
    def of_question(cls, question: PoolQuestion, usages: Sequence[Mapping[str, Any] | None] = ()) -> "Bill":
        """What the responses to a question cost that a pool holds.

        Args:
            question: the question.
            usages: the ``usage_metadata`` of each response; none where the pool has none.
        """
        prompt = max((one.prompt_tokens or 0 for one in question.responses), default=0)
        told = usages or [None] * len(question.responses)
        return sum((_of_response(*pair, prompt) for pair in zip(question.responses, told, strict=True)), cls())


def details_of(usage: Mapping[str, Any] | None) -> dict[str, int]:
    """What a ``usage_metadata`` tells beside prompt and generated tokens, under the names of :class:`Bill`."""
    held = ((usage or {}).get(f"{side}_token_details") for side in ("input", "output"))
    inside, outside = (details if isinstance(details, Mapping) else {} for details in held)
    told = {
        "cached": inside.get("cache_read"),
        "cache_written": inside.get("cache_creation"),
        "reasoning": outside.get("reasoning"),
    }
    return {name: value for name, value in told.items() if is_count(value)}


@dataclass(frozen=True, slots=True)
class QuestionCost:
    """What the responses to a question cost on average, from which the cost of others can be told.

    Attributes:
        id: the question.
        responses: how many.
        prompt: prompt tokens per response, where the provider told them of each; a prompt that several share counts
            once among them.
        completion: generated tokens per response.
    """

    id: str
    responses: int
    prompt: float | None
    completion: float


def cost_of(id: str, bill: Bill) -> QuestionCost | None:
    """The average of a question's bill; None where no response came."""
    if not bill.responses:
        return None
    prompt = None if bill.without_usage else bill.prompt / bill.responses
    return QuestionCost(id, bill.responses, prompt, bill.completion / bill.responses)


class Tally:
    """A bill that grows while a pool is recorded."""

    def __init__(self) -> None:
        self.bill = Bill()
        """All of it so far."""
        self.costs: list[QuestionCost] = []
        """The average of each question so far."""

    def add(self, question: str, bill: Bill) -> None:
        """Count what was drawn for a question."""
        self.bill += bill
        if cost := cost_of(question, bill):
            self.costs.append(cost)


def _of_sample(sample: Sample, prompt: int) -> Bill:
    message = sample.message
    attempts = message.response_metadata.get(FAILED_ATTEMPTS, ()) if message else ()
    lost = sum(int(attempt.get(RECEIVED_TOKENS, 0)) for attempt in attempts)
    if message is None:  # what does not fit the context was never begun
        return Bill(failed=int(sample.error is None or not is_overflow(sample.error)))
    usage, tokens, whole = reported_usage(message), output_tokens(message), sample.status == "complete"
    silent = is_estimated(message) and whole
    return Bill(
        responses=int(whole),
        prompt=usage["input_tokens"] if usage else prompt if whole else 0,
        completion=tokens + lost,
        failed=len(attempts) + (not whole),
        lost=lost + (0 if whole else tokens),
        without_usage=int(silent),
        **details_of(usage),
    )


def _of_response(response: PoolResponse, usage: Mapping[str, Any] | None, prompt: int) -> Bill:
    told = response.prompt_tokens
    return Bill(
        responses=1,
        prompt=prompt if told is None else told,
        completion=response.completion_tokens,
        without_usage=int(told is None),
        **details_of(usage),
    )
