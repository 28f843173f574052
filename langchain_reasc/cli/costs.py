"""What a recording is expected to cost, may cost, and has cost: told, and held to its limits."""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from langchain_reasc.cli.console import remark, stdout
from langchain_reasc.cli.cost_lines import billed, estimated, in_short
from langchain_reasc.exceptions import ConfigurationError, PoolError

if TYPE_CHECKING:
    from langchain_reasc.data.questions import LabelledQuestion
    from langchain_reasc.data.template import Template
    from langchain_reasc.pools.asking import Asked, Asking
    from langchain_reasc.pools.bill import Bill, QuestionCost
    from langchain_reasc.pools.estimate import Estimate
    from langchain_reasc.pools.prices import Price, Prices
    from langchain_reasc.pools.record import Workers

__all__ = ["Costs", "Limits"]

_FIRST: Final = 3  # questions after which the length of the responses is known well enough to tell


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may cost at most.

    Attributes:
        cost: money, in the currency of the prices.
        tokens: prompt and generated tokens together.
    """

    cost: float | None = None
    tokens: int | None = None


class Costs:
    """The costs of one run of a recording.

    Args:
        prices: the file of prices; None tells tokens alone.
        limits: what it may cost.

    Raises:
        ConfigurationError: the file cannot be read, or a cost is limited and there are no prices.
    """

    def __init__(self, prices: Path | None, limits: Limits) -> None:
        from langchain_reasc.pools.bill import Tally
        from langchain_reasc.pools.prices import read_prices

        if limits.cost is not None and prices is None:
            raise ConfigurationError("--max-cost goes with --prices, which says what tokens cost")
        self.tally = Tally()
        self._limits = limits
        self._prices: Prices | None = None if prices is None else read_prices(prices)
        self._price: Price | None = None
        self._estimate: Callable[[Sequence[QuestionCost]], Estimate] | None = None
        self._told, self._first = False, _FIRST
        self._refusal: str | None = None
        self._began = time.monotonic()

    def expect(
        self,
        model: Any,
        questions: "Sequence[LabelledQuestion]",
        out: Path,
        *,
        samples: int,
        prompt: "Template",
        dry_run: bool,
    ) -> None:
        """Say what drawing all that ``out`` does not hold is expected to cost.

        Raises:
            ConfigurationError: the model has no price, or the limits do not allow as much.
        """
        from langchain_reasc.models.prepared import PreparedModel
        from langchain_reasc.pools.estimate import estimate

        if self._prices is not None:
            self._price = self._prices.of(str(PreparedModel.of(model).fingerprint().model))
        held, costs = _held(out)
        draws = {question.id: max(0, samples - held.get(question.id, 0)) for question in questions}

        def of(known: "Sequence[QuestionCost]") -> "Estimate":
            return estimate(model, questions, draws, prompt, costs=known)

        expected = of(costs)
        self._told, self._estimate = expected.is_expected, of
        for line in estimated(expected, self._price, self._currency, questions=len(questions)):
            stdout().print(line, soft_wrap=True, markup=False) if dry_run else remark(line)
        self._refusal = self._expected_too_much(expected, "nothing was drawn")
        self.check()

    def workers(self, concurrency: int, elsewhere: "Workers | None" = None) -> "Workers":
        """What asks the questions, as long as the limits allow it.

        Args:
            concurrency: questions in flight at once, of this process. Those that are when a limit is reached are still
                recorded.
            elsewhere: what asks them in place of this process; what it then has in flight is given up.
        """
        from langchain_reasc.pools.asking import each_question

        self._first = max(_FIRST, concurrency)  # those that are done first have short responses

        def allowed(asked: "Sequence[Asked]") -> "Iterator[Asked]":
            for one in asked:
                if self._is_over():
                    return
                yield one

        def until_over(asked: "Sequence[Asked]", asking: "Asking") -> "Generator[tuple[Asked, Any], None, None]":
            answers = elsewhere(asked, asking) if elsewhere else ()
            try:
                for answer in answers:
                    yield answer
                    if self._is_over():
                        return
            finally:
                if isinstance(answers, Generator):
                    answers.close()

        return until_over if elsewhere else lambda asked, asking: each_question(allowed(asked), asking, concurrency)

    def watching(self, move: Callable[[int, int], None]) -> Callable[[int, int], None]:
        """Moves a bar; after the first questions, tells what all will cost."""

        def moved(done: int, total: int) -> None:
            move(done, total)
            costs = self.tally.costs
            if not self._told and len(costs) >= self._first and done < total and self._estimate:
                self._told = True
                expected = self._estimate(costs)
                takes = in_short(expected, self._price, self._currency)
                remark(f"After {len(costs)} questions: {takes} in all")
                self._refusal = self._expected_too_much(expected, "what was recorded is kept")

        return moved

    def check(self) -> None:
        """Say so where the recording ended before its end.

        Raises:
            ConfigurationError: it did.
        """
        if self._refusal:
            raise ConfigurationError(self._refusal)

    @contextmanager
    def told_in_the_end(self) -> Iterator[None]:
        """Prints the bill, whichever way it ends."""
        self._began = time.monotonic()
        try:
            yield
        finally:
            bill = self.tally.bill
            if bill != type(bill)():
                for line in billed(bill, self._price, self._currency, seconds=time.monotonic() - self._began):
                    remark(line)

    @property
    def _currency(self) -> str:
        return self._prices.currency if self._prices else ""

    def _expected_too_much(self, expected: "Estimate", kept: str) -> str | None:
        """Why not to go on, if so. An upper bound, or half of what it takes, is not expected."""
        bill = expected.bill
        if expected.completion_by == "limit":
            bill = type(bill)(responses=bill.responses, prompt=bill.prompt)
        for spent, limit, option in self._against(bill):
            if spent > limit:
                return (
                    f"{option} allows {self._amount(limit, option)}, and {self._amount(spent, option)} are expected: "
                    f"{kept}. Raise it, or take fewer questions (--limit) or --samples"
                )
        return None

    def _is_over(self) -> bool:
        self._refusal = self._refusal or self._spent_too_much()
        return self._refusal is not None

    def _spent_too_much(self) -> str | None:
        for spent, limit, option in self._against(self.tally.bill):
            if spent >= limit:
                return (
                    f"{option} allows {self._amount(limit, option)}, and {self._amount(spent, option)} are spent: what "
                    "was recorded is kept. The same command goes on, with as much again"
                )
        return None

    def _against(self, bill: "Bill") -> Iterator[tuple[float, float, str]]:
        if self._limits.tokens is not None:
            yield bill.tokens, self._limits.tokens, "--max-tokens-total"
        if self._limits.cost is not None and self._price is not None:
            yield self._price.of(bill), self._limits.cost, "--max-cost"

    def _amount(self, value: float, option: str) -> str:
        from langchain_reasc.pools.prices import money

        return money(value, self._currency) if option == "--max-cost" else f"{value:,.0f} tokens"


def _held(out: Path) -> "tuple[dict[str, int], list[QuestionCost]]":
    """How many responses to which questions the pool there has, and what these cost; errors are the recorder's."""
    from langchain_reasc.pools.bill import Bill, cost_of
    from langchain_reasc.pools.reading import read_stored

    try:
        questions = read_stored(out).questions if out.exists() else ()
    except PoolError:
        return {}, []
    costs = (cost_of(question.id, Bill.of_question(question)) for question in questions)
    return {one.id: len(one.responses) for one in questions}, [cost for cost in costs if cost is not None]
