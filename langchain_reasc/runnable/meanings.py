"""Sort answers in free text by what they mean, as a judge, an entailment model or a
function tells.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import merge_configs

from langchain_reasc.answers import (
    Classes,
    Equivalence,
    Unclear,
    question_text,
    spelling,
)
from langchain_reasc.exceptions import is_control_flow
from langchain_reasc.sampling import Cutoff, QuestionClock, within

_PATIENCE: Final = (
    3  # comparisons that failed in a row, after which a judge is asked no more
)


class Meanings:
    """Sorts the answers to one question into classes; see
    :func:`langchain_reasc.answers.free_text`.

    Each comparison runs in a thread of its own. It ends with its own time limit, with
    that of the question, or when the call is given up. A judge is asked below the
    ``config`` of the question's run.

    Attributes:
        judged: the prompts of a judge, which is another model and paid for, and its
            replies; None without a judge.
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
        self._equivalence = equivalence
        self._config = config
        self._clock = clock
        self._cutoff = cutoff
        self._same = equivalence.between(question_text(messages), self._ask)
        self._classes = Classes(self._compare, spelling=spelling)
        self._comparisons = 0
        self._failed = 0
        self._failed_in_a_row = 0
        self._first_failure: Exception | None = None
        self.judged: list[tuple[str, AIMessage]] | None = (
            [] if equivalence.kind == "judge" else None
        )

    def meaning_of(self, answer: str) -> str:
        """Return the first answer that means the same; a comparison that fails counts
        as different.
        """
        return self._classes.class_of(answer)

    def same(self, answer: str, other_answer: str) -> bool:
        """Return whether two answers mean the same.

        Raises:
            Exception: the comparison failed; TimeoutError where it took too long.
        """
        if spelling(answer) == spelling(other_answer):
            return True
        limits = [self._equivalence.timeout, self._clock.left]
        seconds = min((limit for limit in limits if limit is not None), default=None)
        compare = partial(self._same, answer, other_answer)
        return within(seconds, compare, self._cutoff)

    @property
    def notices(self) -> list[str]:
        """What the caller should know."""
        if not self._failed:
            return []
        return [
            f"{self._failed} of {self._comparisons} comparisons of answers by "
            f"{self._equivalence.name} failed, and count as not the same; the first: "
            f"{self._first_failure!r}"
        ]

    def _compare(self, answer: str, other_answer: str) -> bool:
        self._comparisons += 1
        if self._failed_in_a_row < _PATIENCE:
            try:
                is_same = self.same(answer, other_answer)
            except Exception as error:
                # Whatever a judge or a user's function raises, no sample is lost for it.
                if is_control_flow(error):
                    raise
                self._note_failure(error)
            else:
                self._failed_in_a_row = 0
                return is_same
        self._failed += 1
        return False

    def _note_failure(self, error: Exception) -> None:
        if self._first_failure is None:
            self._first_failure = error
        # A function of the user's, and an unclear reply, cost no time to ask again.
        if self._equivalence.kind != "same" and not isinstance(error, Unclear):
            self._failed_in_a_row += 1

    def _ask(self, judge: Runnable[Any, Any], prompt: str) -> AIMessage:
        # LangGraph shows no tokens of runs tagged nostream.
        judge_config: RunnableConfig = {
            "tags": ["nostream", "reasc:judge"],
            "run_name": "reasc judge",
        }
        reply = judge.invoke(prompt, merge_configs(self._config, judge_config))
        if not isinstance(reply, AIMessage):
            raise TypeError(
                f"the judge must give an AIMessage, got {type(reply).__name__}"
            )
        if self.judged is not None:
            self.judged.append((prompt, reply))
        return reply
