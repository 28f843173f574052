"""The budget of ``reasc record``: expected, allowed and spent tokens."""

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
from langchain_reasc_lab.pools import (
    DrawnQuestion,
    PendingQuestion,
    QuestionSampler,
    Workers,
    read_ungraded,
    sample_questions,
)
from langchain_reasc_lab.pools.tokens import Estimate, TokenCount, count_lines, estimate

_FIRST: Final = (
    3  # questions after which the length of the responses is known well enough
)
Drawing = Generator[tuple[PendingQuestion, Any], None, None]


class Budget:
    """The tokens of one run of a recording, and their limit.

    Args:
        max_tokens: prompt and generated tokens that the run may take; None for any
            number.
    """

    def __init__(self, max_tokens: int | None = None) -> None:
        self.spent = TokenCount()
        self._drawn: dict[str, TokenCount] = {}  # by question
        self._max_tokens = max_tokens
        self._estimate: Callable[[dict[str, TokenCount]], Estimate] | None = None
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
        """Print how many tokens drawing all that ``out`` does not hold is expected to
        take.

        Raises:
            ConfigurationError: the limit does not allow as many.
        """
        try:
            recorded = read_ungraded(out).questions if out.exists() else ()
        except PoolError:  # recording raises it again
            recorded = ()
        held = {
            question.id: TokenCount.of_responses(question.responses)
            for question in recorded
        }
        draws: dict[str, int] = {}
        for question in questions:
            responses = held[question.id].responses if question.id in held else 0
            draws[question.id] = max(0, samples - responses)
        again = partial(estimate, model, questions, draws, prompt)
        expected = again(held)
        if not expected.is_expected:
            self._estimate = again  # after the first questions
        lines = expected.lines(questions=len(questions))
        if dry_run:
            print_lines(lines)
        for line in lines:
            remark(line)
        self._refuse_expected(expected, "nothing was drawn")
        self.check()

    def limited(
        self, concurrency: int, elsewhere: Callable[..., Drawing] | None = None
    ) -> Workers:
        """Return workers that stop when the limit is reached.

        Args:
            concurrency: questions in flight at once, of this process. Those that are
                when the limit is reached are still recorded.
            elsewhere: workers to use instead of this process; what they then have in
                flight is given up.
        """
        # those that are complete first have short responses
        self._first = max(_FIRST, concurrency)

        def run(
            pending: Sequence[PendingQuestion], sampler: QuestionSampler
        ) -> Drawing:
            if elsewhere is None:
                allowed = takewhile(lambda question: not self._is_spent(), pending)
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
        count = TokenCount.of_drawn(drawn)
        self.spent += count
        if count.responses:
            self._drawn[drawn.question.id] = count

    def watch(self, done: int, total: int) -> None:
        """After the first questions, print how many tokens all will take."""
        if self._estimate and len(self._drawn) >= self._first and done < total:
            expected = self._estimate(self._drawn)
            self._estimate = None
            remark(f"After {len(self._drawn)} questions: {expected.in_short()} in all")
            self._refuse_expected(expected, "what was recorded is kept")

    def check(self) -> None:
        """Raise where the limit ended the recording.

        Raises:
            ConfigurationError: it did.
        """
        if self._refusal:
            raise ConfigurationError(self._refusal)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Print what was spent at the end, also after an error."""
        began = time.monotonic()
        try:
            yield
        finally:
            if self.spent != TokenCount():
                for line in count_lines(self.spent, seconds=time.monotonic() - began):
                    remark(line)

    def _refuse_expected(self, expected: Estimate, kept: str) -> None:
        """Go on no further where too much is expected. Responses as long as they may be
        are not expected.
        """
        tokens = expected.tokens
        total = tokens.total if expected.completion_by == "recorded" else tokens.prompt
        if (
            self._max_tokens is not None
            and total > self._max_tokens
            and not self._refusal
        ):
            self._refusal = (
                f"--max-tokens-total allows {self._max_tokens:,} tokens, and {total:,} "
                f"tokens are expected: {kept}. Raise it, or take fewer questions "
                "(--limit) or --samples"
            )

    def _is_spent(self) -> bool:
        total = self.spent.total
        if (
            self._max_tokens is not None
            and total >= self._max_tokens
            and not self._refusal
        ):
            self._refusal = (
                f"--max-tokens-total allows {self._max_tokens:,} tokens, and {total:,} "
                "tokens are spent: what was recorded is kept. The same command goes "
                "on, with as much again"
            )
        return self._refusal is not None
