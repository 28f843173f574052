"""Estimates and bills in a few lines, as commands print them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from langchain_reasc.pools.bill import Bill
    from langchain_reasc.pools.estimate import Estimate
    from langchain_reasc.pools.prices import Price

__all__ = ["billed", "counted", "duration", "estimated", "in_short"]


def estimated(expected: "Estimate", price: "Price | None", currency: str, *, questions: int) -> Iterator[str]:
    """An estimate in a few lines; ``questions`` is how many there are, recorded ones included."""
    how = {
        "recorded": "as recorded so far",
        "tokenizer": "by the model's tokenizer",
        "characters": "4 letters each",
    }
    recorded = questions - expected.questions
    beside = f" ({recorded} of {questions} are recorded)" if recorded else ""
    if not expected.responses:
        yield f"Nothing is to be drawn: all {questions:,} questions are recorded"
        return
    responses, asked = counted(expected.responses, "response"), counted(expected.questions, "question")
    yield f"To draw    {responses} to {asked}{beside}"
    yield f"Prompts    about {expected.prompt:,} tokens, {how[expected.prompt_by]}"
    if expected.completion is None:
        yield "Responses  unknown until the first questions are recorded, or --max-tokens set"
    elif expected.completion_by == "limit":
        each = expected.completion // expected.responses
        yield f"Responses  at most {expected.completion:,} tokens, {each:,} each as the model is set"
    else:
        tokens = f"about {expected.completion:,} tokens{_within(expected)}"
        yield f"Responses  {tokens}, as in the {counted(expected.basis, 'question')} recorded"
    if price is not None:
        yield f"Cost       {_cost(expected, price, currency)}"


def _cost(expected: "Estimate", price: "Price", currency: str) -> str:
    from langchain_reasc.pools.prices import money

    total = money(price.of(expected.bill), currency)
    if expected.completion is None:
        return f"{total} for the prompts"
    return f"{'about' if expected.is_expected else 'at most'} {total}"


def in_short(expected: "Estimate", price: "Price | None", currency: str) -> str:
    """An estimate within a sentence."""
    tokens = f"{expected.prompt:,} + {expected.completion or 0:,} tokens{_within(expected)}"
    return f"{tokens}, {_cost(expected, price, currency)}" if price else tokens


def billed(
    bill: "Bill", price: "Price | None", currency: str, *, seconds: float | None = None, verb: str = "Drawn"
) -> Iterator[str]:
    """A bill in a few lines; ``verb`` is what was done with the responses."""
    from langchain_reasc.pools.prices import money

    failed = f"; {bill.failed:,} failed" if bill.failed else ""
    lost = f", whose {bill.lost:,} tokens count" if bill.lost else ""
    time_taken = "" if seconds is None else f" in {duration(seconds)}"
    yield f"{verb:10} {counted(bill.responses, 'response')}{time_taken}{failed}{lost}"
    if not bill.tokens:
        return
    prompts = _of_which((bill.cached, "from a cache"), (bill.cache_written, "written to one"))
    yield f"Prompts    {bill.prompt:,} tokens{prompts}"
    yield f"Responses  {bill.completion:,} tokens{_of_which((bill.reasoning, 'of reasoning'))}"
    if price is not None:
        yield f"Cost       {money(price.of(bill), currency)}"
    if bill.without_usage:
        yield f"           {bill.without_usage:,} responses came without usage; their tokens are estimated"


def counted(number: int, what: str) -> str:
    """So many of something: ``1 question``, ``2,000 questions``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _of_which(*parts: tuple[int, str]) -> str:
    told = [f"{tokens:,} {what}" for tokens, what in parts if tokens]
    return f", {' and '.join(told)}" if told else ""


def _within(expected: "Estimate") -> str:
    if expected.spread is None:
        return ""
    return f" (±{expected.spread:.0%})" if expected.spread < 1 else " (or many more)"
