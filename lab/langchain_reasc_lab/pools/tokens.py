"""The tokens of a recording, spent and estimated."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final, Literal

from langchain_core.language_models import LanguageModelInput
from langchain_core.runnables import Runnable
from scipy.special import stdtrit

from langchain_reasc.data import LabelledQuestion, Template
from langchain_reasc.models.prepared import prepare_model
from langchain_reasc.models.usage import tokens_of_text
from langchain_reasc_lab.pools.drawing import DrawnQuestion
from langchain_reasc_lab.pools.pool import Pool
from langchain_reasc_lab.pools.recording import model_limit
from langchain_reasc_lab.pools.store import PoolResponse

__all__ = [
    "Estimate",
    "TokenCount",
    "count_lines",
    "duration",
    "estimate",
    "pool_tokens",
]

_LEAST: Final = 3  # questions from which a spread can be estimated
_LEVEL: Final = 0.975
_PROMPT_BY: Final = {"recorded": "as recorded so far", "characters": "4 letters each"}


@dataclass(frozen=True, slots=True)
class TokenCount:
    """Tokens of some responses; two counts add up.

    Attributes:
        responses: complete ones.
        prompt: prompt tokens.
        completion: generated tokens, ``lost`` among them.
        failed: samples and requests that gave no response, as far as they are known.
        lost: tokens that had been generated before they failed.
        without_usage: responses whose provider did not report their tokens. They are
            counted from what arrived, and their prompt as for the others of their
            question, if there is one.
    """

    responses: int = 0
    prompt: int = 0
    completion: int = 0
    failed: int = 0
    lost: int = 0
    without_usage: int = 0

    def __add__(self, other: "TokenCount") -> "TokenCount":
        return TokenCount(
            *(a + b for a, b in zip(astuple(self), astuple(other), strict=True))
        )

    @property
    def total(self) -> int:
        """All tokens."""
        return self.prompt + self.completion

    @classmethod
    def of_drawn(cls, drawn: DrawnQuestion) -> "TokenCount":
        """Count the samples of a question, failed ones included."""
        responses = [each.response for each in drawn.responses]
        count = cls.of_responses(
            responses, [each.estimated for each in drawn.responses]
        )
        return count + cls(
            failed=drawn.failed,
            lost=drawn.failed_tokens,
            completion=drawn.failed_tokens,
        )

    @classmethod
    def of_responses(
        cls, responses: Sequence[PoolResponse], estimated: Sequence[bool] = ()
    ) -> "TokenCount":
        """Count the responses to one question.

        Args:
            responses: the responses.
            estimated: whether the provider did not report the tokens of each; empty for
                those without prompt tokens.
        """
        longest = max(
            (response.prompt_tokens or 0 for response in responses), default=0
        )
        prompts = [
            longest if response.prompt_tokens is None else response.prompt_tokens
            for response in responses
        ]
        unreported = estimated or [
            response.prompt_tokens is None for response in responses
        ]
        return cls(
            responses=len(responses),
            prompt=sum(prompts),
            completion=sum(response.completion_tokens for response in responses),
            without_usage=sum(unreported),
        )


def pool_tokens(pool: Pool) -> TokenCount:
    """Count all that a pool holds, with the samples that failed meanwhile."""
    failed = pool.metadata.get("failed") or {}
    lost = int(failed.get("tokens", 0))
    count = TokenCount(failed=int(failed.get("samples", 0)), lost=lost, completion=lost)
    for question in pool.questions:
        count += TokenCount.of_responses(question.responses)
    return count


@dataclass(frozen=True, slots=True)
class Estimate:
    """Tokens that are still to be spent.

    Attributes:
        questions: how many are to be sampled.
        tokens: of the responses to draw; without a completion where that cannot be
            estimated.
        prompt_by: ``recorded``: as in the prompts recorded already; ``characters``:
            four a token, which is right by a quarter or so in English.
        completion_by: ``recorded``: as long as the responses so far; ``limit``: all as
            long as they may be, at most; None: not known.
        basis: the recorded questions that this rests on.
        spread: half the width of the 95 % interval of the completion, relative to it;
            None if it is not known.
    """

    questions: int
    tokens: TokenCount
    prompt_by: Literal["recorded", "characters"]
    completion_by: Literal["recorded", "limit"] | None
    basis: int = 0
    spread: float | None = None

    @property
    def is_expected(self) -> bool:
        """Whether it is what is to be expected, and neither an upper bound nor the
        prompts alone.
        """
        return self.completion_by == "recorded" or not self.tokens.responses

    def lines(self, *, questions: int) -> Iterator[str]:
        """Yield the estimate in a few lines; ``questions`` counts all, recorded ones
        included.
        """
        tokens = self.tokens
        if not tokens.responses:
            yield f"Nothing is to be drawn: all {questions:,} questions are recorded"
            return
        recorded = (
            f" ({questions - self.questions} of {questions} are recorded)"
            if questions > self.questions
            else ""
        )
        yield f"To draw    {_plural(tokens.responses, 'response')} to {_plural(self.questions, 'question')}{recorded}"
        yield f"Prompts    about {tokens.prompt:,} tokens, {_PROMPT_BY[self.prompt_by]}"
        if self.completion_by is None:
            yield "Responses  unknown until the first questions are recorded, or --max-tokens set"
        elif self.completion_by == "limit":
            each = tokens.completion // tokens.responses
            yield f"Responses  at most {tokens.completion:,} tokens, {each:,} each as the model is set"
        else:
            basis = _plural(self.basis, "question")
            yield f"Responses  about {tokens.completion:,} tokens{self._within}, as in the {basis} recorded"

    def in_short(self) -> str:
        """Return the estimate within a sentence."""
        return (
            f"{self.tokens.prompt:,} + {self.tokens.completion:,} tokens{self._within}"
        )

    @property
    def _within(self) -> str:
        if self.spread is None:
            return ""
        return f" (±{self.spread:.0%})" if self.spread < 1 else " (or many more)"


def estimate(
    model: Runnable[LanguageModelInput, Any],
    questions: Sequence[LabelledQuestion],
    draws: Mapping[str, int],
    template: Template,
    recorded: Mapping[str, TokenCount],
) -> Estimate:
    """Estimate the tokens that drawing responses takes.

    Args:
        model: the chat model.
        questions: all questions, those included that are recorded.
        draws: id -> how many responses are still to be drawn.
        template: the prompt around each question, a system message included.
        recorded: id -> the tokens of the responses recorded already, of questions with
            one at least.
    """
    lengths: dict[str, int] = {}
    for question in questions:
        lengths[question.id] = sum(
            len(str(message.content)) for message in template.messages(question.input)
        )
    missing = {id: number for id, number in draws.items() if number}
    responses = sum(missing.values())
    prompt, prompt_by = _prompt_tokens(
        sum(lengths[id] * number for id, number in missing.items()), lengths, recorded
    )
    limit = model_limit(prepare_model(model))
    completion = 0
    completion_by: Literal["recorded", "limit"] | None = None
    spread = None
    if recorded:
        mean, spread = _mean_and_spread(list(recorded.values()))
        completion = round(mean * responses)
        completion_by = "recorded"
    elif limit is not None:
        completion = limit * responses
        completion_by = "limit"
    tokens = TokenCount(responses=responses, prompt=prompt, completion=completion)
    return Estimate(
        len(missing), tokens, prompt_by, completion_by, len(recorded), spread
    )


def _prompt_tokens(
    characters: int, lengths: Mapping[str, int], recorded: Mapping[str, TokenCount]
) -> tuple[int, Literal["recorded", "characters"]]:
    """Return how many tokens prompts of so many characters take, and by what that is
    known.

    Args:
        characters: of the prompts to send.
        lengths: id -> characters of the prompt of each question.
        recorded: as for :func:`estimate`.
    """
    # A prompt that several responses share counts once among them.
    reported = {
        id: count
        for id, count in recorded.items()
        if count.prompt and not count.without_usage and id in lengths
    }
    if not reported:
        return tokens_of_text(characters), "characters"
    recorded_characters = sum(
        lengths[id] * count.responses for id, count in reported.items()
    )
    recorded_tokens = sum(count.prompt for count in reported.values())
    return round(characters * recorded_tokens / recorded_characters), "recorded"


def _mean_and_spread(counts: Sequence[TokenCount]) -> tuple[float, float | None]:
    """Return tokens per response, and half of its 95 % interval relative to it
    (Student's t over questions).
    """
    mean = sum(count.completion for count in counts) / sum(
        count.responses for count in counts
    )
    if len(counts) < _LEAST or not mean:
        return mean, None
    error = statistics.stdev(
        count.completion / count.responses for count in counts
    ) / math.sqrt(len(counts))
    return mean, float(stdtrit(len(counts) - 1, _LEVEL)) * error / mean


def count_lines(
    count: TokenCount, *, seconds: float | None = None, verb: str = "Drawn"
) -> Iterator[str]:
    """Yield a count in a few lines; ``verb`` is what was done with the responses."""
    took = "" if seconds is None else f" in {duration(seconds)}"
    failed = f"; {count.failed:,} failed" if count.failed else ""
    lost = f", whose {count.lost:,} tokens count" if count.lost else ""
    yield f"{verb:10} {_plural(count.responses, 'response')}{took}{failed}{lost}"
    if not count.total:
        return
    yield f"Prompts    {count.prompt:,} tokens"
    yield f"Responses  {count.completion:,} tokens"
    if count.without_usage:
        yield f"           {count.without_usage:,} responses came without usage; their tokens are estimated"


def duration(seconds: float) -> str:
    """Format a time: ``28 ms``, ``1.0 s``, ``2 min 3 s``, ``1 h 5 min``."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _plural(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
