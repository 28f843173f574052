"""What a recording costs: what it has used, what it will use, and at which prices.

Prices are in a file of the user's, JSON, or TOML as here, for a million tokens each, all in one currency::

    currency = "USD"

    [models."gpt-4o-mini"]
    input = 0.15
    output = 0.60
    cached = 0.075

``cached`` (prompt tokens that the provider read from its cache) and ``cache_write`` (those that it wrote to it) cost as
``input`` where they are left out, ``reasoning`` as ``output``.
"""

import math
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError
from scipy.special import stdtrit

from langchain_reasc.complaints import findings, nearest
from langchain_reasc.data import LabelledQuestion, Template
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.models.integrations import integration_of
from langchain_reasc.models.prepared import PreparedModel
from langchain_reasc.models.usage import is_count, tokens_of_text
from langchain_reasc.pools import DrawnQuestion, Pool, PoolResponse, model_limit
from langchain_reasc.untrusted import parse_json, parse_toml, read_text

__all__ = [
    *("Bill", "Estimate", "Price", "Prices", "QuestionCost", "bill_lines", "duration", "estimate", "estimate_in_short"),
    *("estimate_lines", "money", "plural", "pool_bill", "read_prices"),
]

_COUNTED: Final = 256  # prompts that are tokenized; the others go by their length
_LEAST: Final = 3  # questions from which a spread can be estimated
_LEVEL: Final = 0.975
_PROMPT_BY: Final = {
    "recorded": "as recorded so far",
    "tokenizer": "by the model's tokenizer",
    "characters": "4 letters each",
}


@dataclass(frozen=True, slots=True)
class Bill:
    """Tokens that were paid for; two bills add up.

    Attributes:
        responses: complete ones.
        prompt: prompt tokens, ``cached`` and ``cache_written`` among them.
        completion: generated tokens, ``reasoning`` and ``lost`` among them.
        cached: prompt tokens that the provider read from its cache.
        cache_written: those that it wrote to one.
        reasoning: generated tokens of a reasoning that is not shown, or apart.
        failed: samples and requests that gave no response, as far as they are known.
        lost: tokens that had been generated before they failed.
        without_usage: responses whose provider did not report their tokens. They are counted from what arrived, and
            their prompt as for the others of their question, where there is one.
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
    def of_drawn(cls, drawn: DrawnQuestion) -> "Bill":
        """Return what the samples of a question cost, failed ones included."""
        bill = cls.of_responses(
            [one.response for one in drawn.responses],
            [one.message.usage for one in drawn.responses],
            [one.estimated for one in drawn.responses],
        )
        return bill + cls(failed=drawn.failed, lost=drawn.failed_tokens, completion=drawn.failed_tokens)

    @classmethod
    def of_responses(
        cls,
        responses: Sequence[PoolResponse],
        usages: Sequence[Mapping[str, Any] | None] = (),
        estimated: Sequence[bool] = (),
    ) -> "Bill":
        """Return what the responses to one question cost.

        Args:
            responses: the responses.
            usages: the ``usage_metadata`` of each; empty where there is none.
            estimated: whether the provider did not report the tokens of each; empty for those without prompt tokens.
        """
        prompt = max((one.prompt_tokens or 0 for one in responses), default=0)
        unknown = estimated or [one.prompt_tokens is None for one in responses]
        return cls(
            responses=len(responses),
            prompt=sum(prompt if one.prompt_tokens is None else one.prompt_tokens for one in responses),
            completion=sum(one.completion_tokens for one in responses),
            cached=_detail(usages, "input", "cache_read"),
            cache_written=_detail(usages, "input", "cache_creation"),
            reasoning=_detail(usages, "output", "reasoning"),
            without_usage=sum(unknown),
        )


def _detail(usages: Sequence[Mapping[str, Any] | None], side: str, name: str) -> int:
    details = ((usage or {}).get(f"{side}_token_details") for usage in usages)
    counts = (one.get(name) for one in details if isinstance(one, Mapping))
    return sum(count for count in counts if is_count(count))


def pool_bill(pool: Pool) -> Bill:
    """Return what all that a pool holds has cost, with the samples that failed meanwhile."""
    usages = {id: held for store in pool.stores for id, held in store.usages()}
    bill = sum((Bill.of_responses(one.responses, usages.get(one.id) or ()) for one in pool.questions), Bill())
    failed = pool.metadata.get("failed") or {}
    lost = int(failed.get("tokens", 0))
    return bill + Bill(failed=int(failed.get("samples", 0)), lost=lost, completion=lost)


class QuestionCost(NamedTuple):
    """What the responses to a question cost on average, from which the cost of others is estimated.

    Attributes:
        id: the question.
        responses: how many.
        prompt: prompt tokens per response, where the provider reported them for each; a prompt that several share
            counts once among them.
        completion: generated tokens per response.
    """

    id: str
    responses: int
    prompt: float | None
    completion: float

    @classmethod
    def of(cls, id: str, bill: Bill) -> "QuestionCost":
        """Return the average of a question's bill, which has one response at least."""
        prompt = None if bill.without_usage else bill.prompt / bill.responses
        return cls(id, bill.responses, prompt, bill.completion / bill.responses)


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


PerMillion = Annotated[FiniteFloat, Field(ge=0, strict=True)]


class Price(_Record):
    """What a million tokens of a model cost."""

    input: PerMillion = Field(description="Prompt tokens.")
    output: PerMillion = Field(description="Generated tokens.")
    cached: PerMillion | None = Field(default=None, description="Prompt tokens read from a cache; None: as input.")
    cache_write: PerMillion | None = Field(default=None, description="Those written to one; None: as input.")
    reasoning: PerMillion | None = Field(default=None, description="Tokens of hidden reasoning; None: as output.")

    def of(self, bill: Bill) -> float:
        """Return what the tokens of a bill cost."""
        cached = self.input if self.cached is None else self.cached
        written = self.input if self.cache_write is None else self.cache_write
        reasoning = self.output if self.reasoning is None else self.reasoning
        plain = bill.prompt - bill.cached - bill.cache_written
        total = plain * self.input + bill.cached * cached + bill.cache_written * written
        return (total + (bill.completion - bill.reasoning) * self.output + bill.reasoning * reasoning) / 1_000_000


class Prices(_Record):
    """Prices of models by their names."""

    currency: Annotated[str, Field(min_length=1)]
    models: Annotated[dict[str, Price], Field(min_length=1)]

    def of(self, model: str) -> Price:
        """Return the price of a model.

        Raises:
            ConfigurationError: it is not among them.
        """
        if model in self.models:
            return self.models[model]
        near = nearest(model, self.models)
        hint = f"did you mean {near!r}? " if near else ""
        known = ", ".join(map(repr, sorted(self.models)))
        raise ConfigurationError(f"there is no price of the model {model!r}; {hint}The file has prices of {known}")


def read_prices(path: str | os.PathLike[str]) -> Prices:
    """Read a file of prices: ``.toml``, or else JSON.

    Raises:
        ConfigurationError: it is missing, unreadable, or not of the form above; the message says what is wrong where.
    """
    source = Path(path)
    kind, parse = ("TOML", parse_toml) if source.suffix.lower() == ".toml" else ("JSON", parse_json)
    try:
        return Prices.model_validate(parse(read_text(source, encoding="utf-8-sig")))
    except FileNotFoundError:
        raise ConfigurationError(f"no prices at {source}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read prices from {source}: {error}") from error
    except ValidationError as error:
        names = lambda place: Price.model_fields if len(place) > 1 else Prices.model_fields  # noqa: E731
        found = "; ".join(findings(error, whole="the file", names=names))
        raise ConfigurationError(f"{source} is not a file of prices: {found}") from None
    except ValueError as error:
        raise ConfigurationError(f"{source} is not valid {kind}: {error}") from None


@dataclass(frozen=True, slots=True)
class Estimate:
    """Tokens that are still to be paid for.

    Attributes:
        questions: how many are to be sampled.
        responses: how many are to be drawn.
        prompt: prompt tokens.
        prompt_by: ``recorded``: as in the prompts recorded already; ``tokenizer``: by the model's own; ``characters``:
            four a token, which is right by a quarter or so in English.
        completion: generated tokens; None where they cannot be estimated.
        completion_by: ``recorded``: as long as the responses so far; ``limit``: all as long as they may be, at most.
        basis: the recorded questions that this rests on.
        spread: half the width of the 95 % interval of ``completion``, relative to it; None where it is not known.
    """

    questions: int
    responses: int
    prompt: int
    prompt_by: Literal["recorded", "tokenizer", "characters"]
    completion: int | None = None
    completion_by: Literal["recorded", "limit"] | None = None
    basis: int = 0
    spread: float | None = None

    @property
    def bill(self) -> Bill:
        """As a bill, in which an unknown completion is 0."""
        return Bill(responses=self.responses, prompt=self.prompt, completion=self.completion or 0)

    @property
    def is_expected(self) -> bool:
        """Whether it is what is to be expected, and neither an upper bound nor the prompts alone."""
        return self.completion_by == "recorded" or not self.responses


def estimate(
    model: Runnable[LanguageModelInput, Any],
    questions: Sequence[LabelledQuestion],
    draws: Mapping[str, int],
    template: Template,
    *,
    costs: Sequence[QuestionCost] = (),
) -> Estimate:
    """Estimate what it takes to draw responses.

    Args:
        model: the chat model.
        questions: all questions, those included that are recorded.
        draws: id -> how many responses are still to be drawn.
        template: the prompt around each question, a system message included.
        costs: what those recorded already have cost.
    """
    lengths = {one.id: sum(len(str(part.content)) for part in template.messages(one.input)) for one in questions}
    missing = [one for one in questions if draws.get(one.id)]
    drawn = sum(draws[one.id] for one in missing)
    per_character, by = _tokens_per_character(model, missing, template, lengths, costs)
    characters = sum(lengths[one.id] * draws[one.id] for one in missing)
    prompt = tokens_of_text(characters) if per_character is None else round(characters * per_character)
    completion, completion_by, spread = None, None, None
    if costs:
        mean, spread = _mean_and_spread([one.completion for one in costs], [one.responses for one in costs])
        completion, completion_by = round(mean * drawn), "recorded"
    elif (limit := model_limit(PreparedModel.of(model))) is not None:
        completion, completion_by = limit * drawn, "limit"
    return Estimate(len(missing), drawn, prompt, by, completion, completion_by, len(costs), spread)  # type: ignore[arg-type]


def estimate_lines(expected: Estimate, price: Price | None, currency: str, *, questions: int) -> Iterator[str]:
    """Yield an estimate in a few lines; ``questions`` counts all, recorded ones included."""
    if not expected.responses:
        yield f"Nothing is to be drawn: all {questions:,} questions are recorded"
        return
    recorded = questions - expected.questions
    beside = f" ({recorded} of {questions} are recorded)" if recorded else ""
    yield f"To draw    {plural(expected.responses, 'response')} to {plural(expected.questions, 'question')}{beside}"
    yield f"Prompts    about {expected.prompt:,} tokens, {_PROMPT_BY[expected.prompt_by]}"
    if expected.completion is None:
        yield "Responses  unknown until the first questions are recorded, or --max-tokens set"
    elif expected.completion_by == "limit":
        each = expected.completion // expected.responses
        yield f"Responses  at most {expected.completion:,} tokens, {each:,} each as the model is set"
    else:
        basis = plural(expected.basis, "question")
        yield f"Responses  about {expected.completion:,} tokens{_within(expected)}, as in the {basis} recorded"
    if price is not None:
        yield f"Cost       {_cost(expected, price, currency)}"


def estimate_in_short(expected: Estimate, price: Price | None, currency: str) -> str:
    """Return an estimate within a sentence."""
    tokens = f"{expected.prompt:,} + {expected.completion or 0:,} tokens{_within(expected)}"
    return f"{tokens}, {_cost(expected, price, currency)}" if price else tokens


def bill_lines(
    bill: Bill, price: Price | None, currency: str, *, seconds: float | None = None, verb: str = "Drawn"
) -> Iterator[str]:
    """Yield a bill in a few lines; ``verb`` is what was done with the responses."""
    failed = f"; {bill.failed:,} failed" if bill.failed else ""
    lost = f", whose {bill.lost:,} tokens count" if bill.lost else ""
    took = "" if seconds is None else f" in {duration(seconds)}"
    yield f"{verb:10} {plural(bill.responses, 'response')}{took}{failed}{lost}"
    if not bill.tokens:
        return
    from_cache = [f"{bill.cached:,} from a cache"] if bill.cached else []
    to_cache = [f"{bill.cache_written:,} written to one"] if bill.cache_written else []
    cached = f", {' and '.join(from_cache + to_cache)}" if from_cache + to_cache else ""
    yield f"Prompts    {bill.prompt:,} tokens{cached}"
    yield f"Responses  {bill.completion:,} tokens" + (f", {bill.reasoning:,} of reasoning" if bill.reasoning else "")
    if price is not None:
        yield f"Cost       {money(price.of(bill), currency)}"
    if bill.without_usage:
        yield f"           {bill.without_usage:,} responses came without usage; their tokens are estimated"


def money(amount: float, currency: str) -> str:
    """Format an amount with two decimals, or a small one with two significant digits."""
    exponent = int(f"{amount:e}".partition("e")[2])
    decimals = 2 if amount >= 1 or not amount else max(2, 1 - exponent)
    return f"{amount:,.{decimals}f} {currency}"


def plural(number: int, what: str) -> str:
    """Count something: ``1 question``, ``2,000 questions``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Format a time: ``28 ms``, ``1.0 s``, ``2 min 3 s``, ``1 h 5 min``."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _cost(expected: Estimate, price: Price, currency: str) -> str:
    total = money(price.of(expected.bill), currency)
    if expected.completion is None:
        return f"{total} for the prompts"
    return f"{'about' if expected.is_expected else 'at most'} {total}"


def _within(expected: Estimate) -> str:
    if expected.spread is None:
        return ""
    return f" (±{expected.spread:.0%})" if expected.spread < 1 else " (or many more)"


def _tokens_per_character(
    model: Runnable[LanguageModelInput, Any],
    missing: Sequence[LabelledQuestion],
    template: Template,
    lengths: Mapping[str, int],
    costs: Sequence[QuestionCost],
) -> tuple[Fraction | None, Literal["recorded", "tokenizer", "characters"]]:
    """Return how many tokens a character of a prompt takes, and by what that is known; None where it is not."""
    count = _token_counter(model)
    if count is not None and missing:
        some = missing[:: -(-len(missing) // _COUNTED)]
        tokens = sum(count(template.messages(one.input)) for one in some)
        return Fraction(tokens, max(1, sum(lengths[one.id] for one in some))), "tokenizer"
    known = [one for one in costs if one.prompt and one.id in lengths]
    if not known:
        return None, "characters"
    recorded = sum((Fraction(one.prompt or 0) * one.responses for one in known), Fraction())
    return recorded / sum(lengths[one.id] * one.responses for one in known), "recorded"


def _token_counter(model: Runnable[LanguageModelInput, Any]) -> Callable[[list[BaseMessage]], int] | None:
    """Return the model's own count of a prompt's tokens, where that needs no request."""
    source = PreparedModel.of(model).model
    if not isinstance(source, BaseChatModel):
        return None
    if source.custom_get_token_ids:
        return lambda messages: sum(source.get_num_tokens(str(message.content)) for message in messages)
    return source.get_num_tokens_from_messages if integration_of(source).counts_tokens else None


def _mean_and_spread(values: Sequence[float], weights: Sequence[int]) -> tuple[float, float | None]:
    """Return the mean, and half of its 95 % interval relative to it (Student's t over questions)."""
    mean = sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(weights)
    if len(values) < _LEAST or not mean:
        return mean, None
    error = statistics.stdev(values) / math.sqrt(len(values))
    return mean, float(stdtrit(len(values) - 1, _LEVEL)) * error / mean
