"""The cost of a recording: tokens and money, spent and estimated.

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
from typing import Annotated, Any, Final, Literal

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError
from scipy.special import stdtrit

from langchain_reasc.complaints import findings, suggestion
from langchain_reasc.data import LabelledQuestion, Template
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.files import parse_json, parse_toml, read_text
from langchain_reasc.models.integrations import integration_of
from langchain_reasc.models.prepared import prepare_model
from langchain_reasc.models.usage import is_count, tokens_of_text
from langchain_reasc_lab.pools.drawing import DrawnQuestion
from langchain_reasc_lab.pools.pool import Pool
from langchain_reasc_lab.pools.recording import model_limit
from langchain_reasc_lab.pools.store import PoolResponse

__all__ = ["Bill", "Estimate", "Price", "Prices", "bill_lines", "duration", "estimate", "money", "pool_bill"]
__all__ += ["read_prices"]

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
            their prompt as for the others of their question, if there is one.
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
            usages: the ``usage_metadata`` of each; empty if there is none.
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
    usages = {one.id: [message.usage for message in pool.messages(one.id)] for one in pool.questions}
    bill = sum((Bill.of_responses(one.responses, usages[one.id]) for one in pool.questions), Bill())
    failed = pool.metadata.get("failed") or {}
    lost = int(failed.get("tokens", 0))
    return bill + Bill(failed=int(failed.get("samples", 0)), lost=lost, completion=lost)


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


PerMillion = Annotated[FiniteFloat, Field(ge=0, strict=True)]


class Price(_Record):
    """The prices of a million tokens of a model."""

    input: PerMillion = Field(description="Prompt tokens.")
    output: PerMillion = Field(description="Generated tokens.")
    cached: PerMillion | None = Field(default=None, description="Prompt tokens read from a cache; None: as input.")
    cache_write: PerMillion | None = Field(default=None, description="Those written to one; None: as input.")
    reasoning: PerMillion | None = Field(default=None, description="Tokens of hidden reasoning; None: as output.")

    def cost_of(self, bill: Bill) -> float:
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

    def price_of(self, model: str) -> Price:
        """Return the price of a model.

        Raises:
            ConfigurationError: it is not among them.
        """
        if model in self.models:
            return self.models[model]
        raise ConfigurationError(f"no price for the model {model!r}; {suggestion(model, sorted(self.models))}")


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
        bill: the responses to draw and their tokens; without a completion where that cannot be estimated.
        prompt_by: ``recorded``: as in the prompts recorded already; ``tokenizer``: by the model's own; ``characters``:
            four a token, which is right by a quarter or so in English.
        completion_by: ``recorded``: as long as the responses so far; ``limit``: all as long as they may be, at most;
            None: not known.
        basis: the recorded questions that this rests on.
        spread: half the width of the 95 % interval of the completion, relative to it; None if it is not known.
    """

    questions: int
    bill: Bill
    prompt_by: Literal["recorded", "tokenizer", "characters"]
    completion_by: Literal["recorded", "limit"] | None
    basis: int = 0
    spread: float | None = None

    @property
    def is_expected(self) -> bool:
        """Whether it is what is to be expected, and neither an upper bound nor the prompts alone."""
        return self.completion_by == "recorded" or not self.bill.responses

    def lines(self, price: Price | None, currency: str, *, questions: int) -> Iterator[str]:
        """Yield the estimate in a few lines; ``questions`` counts all, recorded ones included."""
        bill = self.bill
        if not bill.responses:
            yield f"Nothing is to be drawn: all {questions:,} questions are recorded"
            return
        recorded = f" ({questions - self.questions} of {questions} are recorded)" if questions > self.questions else ""
        yield f"To draw    {_plural(bill.responses, 'response')} to {_plural(self.questions, 'question')}{recorded}"
        yield f"Prompts    about {bill.prompt:,} tokens, {_PROMPT_BY[self.prompt_by]}"
        if self.completion_by is None:
            yield "Responses  unknown until the first questions are recorded, or --max-tokens set"
        elif self.completion_by == "limit":
            each = bill.completion // bill.responses
            yield f"Responses  at most {bill.completion:,} tokens, {each:,} each as the model is set"
        else:
            basis = _plural(self.basis, "question")
            yield f"Responses  about {bill.completion:,} tokens{self._within}, as in the {basis} recorded"
        if price is not None:
            yield f"Cost       {self._cost(price, currency)}"

    def in_short(self, price: Price | None, currency: str) -> str:
        """Return the estimate within a sentence."""
        tokens = f"{self.bill.prompt:,} + {self.bill.completion:,} tokens{self._within}"
        return f"{tokens}, {self._cost(price, currency)}" if price else tokens

    @property
    def _within(self) -> str:
        if self.spread is None:
            return ""
        return f" (±{self.spread:.0%})" if self.spread < 1 else " (or many more)"

    def _cost(self, price: Price, currency: str) -> str:
        total = money(price.cost_of(self.bill), currency)
        if self.completion_by is None:
            return f"{total} for the prompts"
        return f"{'about' if self.is_expected else 'at most'} {total}"


def estimate(
    model: Runnable[LanguageModelInput, Any],
    questions: Sequence[LabelledQuestion],
    draws: Mapping[str, int],
    template: Template,
    recorded: Mapping[str, Bill],
) -> Estimate:
    """Estimate what it takes to draw responses.

    Args:
        model: the chat model.
        questions: all questions, those included that are recorded.
        draws: id -> how many responses are still to be drawn.
        template: the prompt around each question, a system message included.
        recorded: id -> what the responses recorded already have cost, of questions with one at least.
    """
    lengths = {one.id: sum(len(str(part.content)) for part in template.messages(one.input)) for one in questions}
    missing = [one for one in questions if draws.get(one.id)]
    per_character, prompt_by = _tokens_per_character(model, missing, template, lengths, recorded)
    characters, responses = (
        sum(lengths[one.id] * draws[one.id] for one in missing),
        sum(draws[one.id] for one in missing),
    )
    prompt = tokens_of_text(characters) if per_character is None else round(characters * per_character)
    limit, spread = model_limit(prepare_model(model)), None
    completion, completion_by = 0, None
    if recorded:
        mean, spread = _mean_and_spread(list(recorded.values()))
        completion, completion_by = round(mean * responses), "recorded"
    elif limit is not None:
        completion, completion_by = limit * responses, "limit"
    bill = Bill(responses=responses, prompt=prompt, completion=completion)
    return Estimate(len(missing), bill, prompt_by, completion_by, len(recorded), spread)  # type: ignore[arg-type]


def _tokens_per_character(
    model: Runnable[LanguageModelInput, Any],
    missing: Sequence[LabelledQuestion],
    template: Template,
    lengths: Mapping[str, int],
    recorded: Mapping[str, Bill],
) -> tuple[Fraction | None, Literal["recorded", "tokenizer", "characters"]]:
    """Return how many tokens a character of a prompt takes, and by what that is known; None if it is not."""
    if (count := _token_counter(model)) and missing:
        some = missing[:: -(-len(missing) // _COUNTED)]
        tokens = sum(count(template.messages(one.input)) for one in some)
        return Fraction(tokens, max(1, sum(lengths[one.id] for one in some))), "tokenizer"
    # A prompt that several responses share counts once among them.
    known = [id for id, bill in recorded.items() if bill.prompt and not bill.without_usage and id in lengths]
    if not known:
        return None, "characters"
    characters = sum(lengths[id] * recorded[id].responses for id in known)
    return Fraction(sum(recorded[id].prompt for id in known), characters), "recorded"


def _token_counter(model: Runnable[LanguageModelInput, Any]) -> Callable[[list[BaseMessage]], int] | None:
    """Return the model's own count of a prompt's tokens, where that needs no request."""
    source = prepare_model(model).model
    if not isinstance(source, BaseChatModel):
        return None
    if source.custom_get_token_ids:
        return lambda messages: sum(source.get_num_tokens(str(message.content)) for message in messages)
    return source.get_num_tokens_from_messages if integration_of(source).counts_tokens else None


def _mean_and_spread(bills: Sequence[Bill]) -> tuple[float, float | None]:
    """Return tokens per response, and half of its 95 % interval relative to it (Student's t over questions)."""
    mean = sum(bill.completion for bill in bills) / sum(bill.responses for bill in bills)
    if len(bills) < _LEAST or not mean:
        return mean, None
    error = statistics.stdev(bill.completion / bill.responses for bill in bills) / math.sqrt(len(bills))
    return mean, float(stdtrit(len(bills) - 1, _LEVEL)) * error / mean


def bill_lines(
    bill: Bill, price: Price | None, currency: str, *, seconds: float | None = None, verb: str = "Drawn"
) -> Iterator[str]:
    """Yield a bill in a few lines; ``verb`` is what was done with the responses."""
    took = "" if seconds is None else f" in {duration(seconds)}"
    yield (
        f"{verb:10} {_plural(bill.responses, 'response')}{took}"
        + _if_any(bill.failed, "; {:,} failed")
        + _if_any(bill.lost, ", whose {:,} tokens count")
    )
    if not bill.tokens:
        return
    cached = [_if_any(bill.cached, "{:,} from a cache"), _if_any(bill.cache_written, "{:,} written to one")]
    shown = " and ".join(filter(None, cached))
    yield f"Prompts    {bill.prompt:,} tokens" + (f", {shown}" if shown else "")
    yield f"Responses  {bill.completion:,} tokens" + _if_any(bill.reasoning, ", {:,} of reasoning")
    if price is not None:
        yield f"Cost       {money(price.cost_of(bill), currency)}"
    if bill.without_usage:
        yield f"           {bill.without_usage:,} responses came without usage; their tokens are estimated"


def money(amount: float, currency: str) -> str:
    """Format an amount with two decimals, or a small one with two significant digits."""
    exponent = int(f"{amount:e}".partition("e")[2])
    decimals = 2 if amount >= 1 or not amount else max(2, 1 - exponent)
    return f"{amount:,.{decimals}f} {currency}"


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


def _if_any(number: int, text: str) -> str:
    return text.format(number) if number else ""
