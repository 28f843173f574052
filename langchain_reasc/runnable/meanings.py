"""The answers to one question sorted by what they mean, and what it costs to tell."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import UsageMetadata, add_usage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import merge_configs

from langchain_reasc.answers import Classes, Equivalence, Unclear, spelling
from langchain_reasc.exceptions import is_control_flow
from langchain_reasc.models.cutoff import Cutoff
from langchain_reasc.models.usage import estimated_usage, is_estimated, reported_usage, tokens_of_text
from langchain_reasc.sampling.time_limit import QuestionClock, within

__all__ = ["Meanings"]

_PATIENCE: Final = 3  # failures in a row after which nobody else is asked any more


class Meanings:
    """Sorts the answers to one question into classes; see :func:`langchain_reasc.answers.free_text`.

    Each comparison runs in a thread of its own, and is waited for as long as it may take, the question has time, and
    the call has not been given up.

    Args:
        equivalence: tells whether two answers mean the same.
        messages: the question.
        config: the config of the question's run, below which a judge is asked.
        clock: how long the question may take.
        cutoff: tells when the whole call is given up.
    """

    def __init__(
        self,
        equivalence: Equivalence,
        messages: Sequence[BaseMessage],
        config: RunnableConfig,
        *,
        clock: QuestionClock,
        cutoff: Cutoff,
    ) -> None:
        self._equivalence, self._config, self._clock, self._cutoff = equivalence, config, clock, cutoff
        self._same = equivalence.between(_question(messages), self._ask)
        self._classes = Classes(self._compared, spelling=spelling)
        self._comparisons = self._failed = self._in_a_row = 0
        self._first_failure: Exception | None = None
        self._judged: list[tuple[str, AIMessage]] = []

    def of(self, answer: str) -> str:
        """The first answer that means the same; a comparison that fails says that two do not."""
        return self._classes.of(answer)

    def same(self, one: str, other: str) -> bool:
        """Whether two answers mean the same.

        Raises:
            Exception: it could not be told; TimeoutError where that took too long.
        """
        if spelling(one) == spelling(other):
            return True
        seconds = [limit for limit in (self._equivalence.timeout, self._clock.left) if limit is not None]
        return within(min(seconds, default=None), partial(self._same, one, other), self._cutoff)

    @property
    def bill(self) -> UsageMetadata | None:
        """Tokens of a judge; None where none is asked."""
        if self._equivalence.kind != "judge":
            return None
        bill = UsageMetadata(input_tokens=0, output_tokens=0, total_tokens=0)
        for asked, reply in self._judged:
            usage = reported_usage(reply) or estimated_usage(reply, prompt_tokens=tokens_of_text(len(asked)))
            bill = add_usage(bill, usage)
        return bill

    @property
    def estimated(self) -> bool:
        """Whether some of the judge's tokens were counted from what arrived."""
        return any(is_estimated(reply) for _, reply in self._judged)

    @property
    def notices(self) -> list[str]:
        """What the caller should know."""
        if not self._failed:
            return []
        return [
            f"{self._failed} of {self._comparisons} comparisons of answers by {self._equivalence.name} failed, and "
            f"count as not the same; the first: {self._first_failure!r}"
        ]

    def _compared(self, one: str, other: str) -> bool:
        self._comparisons += 1
        if self._in_a_row < _PATIENCE:
            try:
                same = self.same(one, other)
                self._in_a_row = 0
                return same
            except Exception as error:  # whatever a judge or a user's function may raise: no sample is lost for it
                if is_control_flow(error):
                    raise
                self._first_failure = self._first_failure or error
                self._in_a_row += self._equivalence.kind != "same" and not isinstance(error, Unclear)
        self._failed += 1
        return False

    def _ask(self, judge: Runnable[Any, Any], prompt: str) -> AIMessage:
        # LangGraph shows no tokens of runs tagged nostream.
        own: RunnableConfig = {"tags": ["nostream", "reasc:judge"], "run_name": "reasc judge"}
        reply = judge.invoke(prompt, merge_configs(self._config, own))
        if not isinstance(reply, AIMessage):
            raise TypeError(f"the judge must give an AIMessage, got {type(reply).__name__}")
        self._judged.append((prompt, reply))
        return reply


def _question(messages: Sequence[BaseMessage]) -> str:
    """The text of the last human message; without one, of the last."""
    human = [message for message in messages if message.type == "human"]
    return str((human or messages)[-1].text)
