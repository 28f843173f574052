"""The budget of ``reasc record``: expected, allowed and actual cost."""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from langchain_reasc.cli.console import print_lines, remark
from langchain_reasc.data import LabelledQuestion, Template
from langchain_reasc.exceptions import ConfigurationError, PoolError
from langchain_reasc.models.prepared import prepare_model
from langchain_reasc.runnable.setup import running_fingerprint
from langchain_reasc_lab.pools import (
    DrawnQuestion,
    PendingQuestion,
    QuestionSampler,
    Workers,
    read_ungraded,
    sample_questions,
)
from langchain_reasc_lab.pools.costs import Bill, Estimate, Price, bill_lines, estimate, money, read_prices

_FIRST: Final = 3  # questions after which the length of the responses is known well enough
Drawing = Generator[tuple[PendingQuestion, Any], None, None]


class Budget:
    """The costs of one run of a recording, and its limits.

    Args:
        prices: the file of prices; None counts tokens alone.
        max_cost: the most that the run may cost, in the currency of the prices.
        max_tokens: prompt and generated tokens that the run may take.

    Raises:
        ConfigurationError: the file cannot be read, or a cost is limited and there are no prices.
    """

    def __init__(
        self, prices: Path | None = None, max_cost: float | None = None, max_tokens: int | None = None
    ) -> None:
        if max_cost is not None and prices is None:
            raise ConfigurationError("--max-cost goes with --prices, which says what tokens cost")
        self.bill = Bill()
        self._drawn: dict[str, Bill] = {}  # by question
        self._max_cost, self._max_tokens = max_cost, max_tokens
        self._prices = None if prices is None else read_prices(prices)
        self._price: Price | None = None
        self._currency = self._prices.currency if self._prices else ""
        self._estimate: Callable[[dict[str, Bill]], Estimate] | None = None
        self._first = _FIRST
        self._refusal: str | None = None

    def expect(
        self,
        model: Any,
        questions: Sequence[LabelledQuestion],
        out: Path,
        *,
        samples: int,
        prompt: Template,
        dry_run: bool,
    ) -> None:
        """Print what drawing all that ``out`` does not hold is expected to cost.

        Raises:
            ConfigurationError: the model has no price, or the limits do not allow as much.
        """
        if self._prices is not None:
            self._price = self._prices.price_of(str(running_fingerprint(prepare_model(model)).model))
        try:
            recorded = read_ungraded(out).questions if out.exists() else ()
        except PoolError:  # recording raises it again
            recorded = ()
        held = {one.id: Bill.of_responses(one.responses) for one in recorded}
        draws = {one.id: max(0, samples - held.get(one.id, Bill()).responses) for one in questions}
        again = partial(estimate, model, questions, draws, prompt)
        expected = again(held)
        if not expected.is_expected:
            self._estimate = again  # after the first questions
        lines = expected.lines(self._price, self._currency, questions=len(questions))
        if dry_run:
            print_lines(lines)
        for line in lines:
            remark(line)
        self._refuse_expected(expected, "nothing was drawn")
        self.check()

    def limited(self, concurrency: int, elsewhere: Callable[..., Drawing] | None = None) -> Workers:
        """Return workers that stop when a limit is reached.

        Args:
            concurrency: questions in flight at once, of this process. Those that are when a limit is reached are still
                recorded.
            elsewhere: workers to use instead of this process; what they then have in flight is given up.
        """
        self._first = max(_FIRST, concurrency)  # those that are complete first have short responses

        def run(pending: Sequence[PendingQuestion], sampler: QuestionSampler) -> Drawing:
            if elsewhere is None:
                allowed = takewhile(lambda one: not self._is_spent(), pending)
                yield from sample_questions(allowed, sampler, concurrency)
                return
            with closing(elsewhere(pending, sampler)) as results:
                for result in results:
                    yield result
                    if self._is_spent():
                        return

        return run

    def add(self, drawn: DrawnQuestion) -> None:
        """Count what was drawn for a question."""
        bill = Bill.of_drawn(drawn)
        self.bill += bill
        if bill.responses:
            self._drawn[drawn.question.id] = bill

    def watch(self, done: int, total: int) -> None:
        """After the first questions, print what all will cost."""
        if self._estimate and len(self._drawn) >= self._first and done < total:
            expected = self._estimate(self._drawn)
            self._estimate = None
            cost = expected.in_short(self._price, self._currency)
            remark(f"After {len(self._drawn)} questions: {cost} in all")
            self._refuse_expected(expected, "what was recorded is kept")

    def check(self) -> None:
        """Raise where a limit ended the recording.

        Raises:
            ConfigurationError: it did.
        """
        if self._refusal:
            raise ConfigurationError(self._refusal)

    @contextmanager
    def billed(self) -> Iterator[None]:
        """Print the bill at the end, also after an error."""
        began = time.monotonic()
        try:
            yield
        finally:
            if self.bill != Bill():
                for line in bill_lines(self.bill, self._price, self._currency, seconds=time.monotonic() - began):
                    remark(line)

    def _refuse_expected(self, expected: Estimate, kept: str) -> None:
        """Go on no further where too much is expected. Responses as long as they may be are not expected."""
        bill = expected.bill if expected.completion_by == "recorded" else Bill(prompt=expected.bill.prompt)
        for option, spent, limit, shown in self._limits(bill):
            if spent > limit and not self._refusal:
                self._refusal = (
                    f"{option} allows {shown(limit)}, and {shown(spent)} are expected: {kept}. Raise it, or take fewer "
                    "questions (--limit) or --samples"
                )

    def _is_spent(self) -> bool:
        for option, spent, limit, shown in self._limits(self.bill):
            if spent >= limit and not self._refusal:
                self._refusal = (
                    f"{option} allows {shown(limit)}, and {shown(spent)} are spent: what was recorded is kept. The "
                    "same command goes on, with as much again"
                )
        return self._refusal is not None

    def _limits(self, bill: Bill) -> Iterator[tuple[str, float, float, Callable[[float], str]]]:
        """Yield (option, what the bill takes of it, the limit, how to print such an amount)."""
        if self._max_tokens is not None:
            yield "--max-tokens-total", bill.tokens, self._max_tokens, lambda tokens: f"{tokens:,.0f} tokens"
        if self._max_cost is not None and self._price is not None:
            yield "--max-cost", self._price.cost_of(bill), self._max_cost, lambda cost: money(cost, self._currency)
