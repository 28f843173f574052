"""One more response after the decision, now and then: does it agree with the answer?"""

from collections.abc import Sequence

from langchain_reasc.method.stopping import Decision, Response
from langchain_reasc.runnable.votes import Votes
from langchain_reasc.sampling import Sample

__all__ = ["Audit"]


class Audit:
    """An audit of a decision by one more response, on which the decision does not rest.

    Args:
        votes: reads the responses.

    Attributes:
        index: which sample it is, once that is launched.
        answers: its answer, once that is read.
    """

    def __init__(self, votes: Votes) -> None:
        self._votes = votes
        self._notices: list[str] | None = None
        self.index: int | None = None
        self.answers: list[str | None] = []

    def is_due(self, decision: Decision) -> bool:
        """Return whether the response is yet to be launched: where a rule decided."""
        return self.index is None and decision.reason not in ("budget", "timeout", "alone", "hopeless")

    def read(self, sample: Sample, decision: Decision, responses: Sequence[Response]) -> None:
        """Compare its answer with that of the decision on ``responses``."""
        before, outcome = self._votes.notices(responses), ", and came to nothing"
        if sample.status == "complete" and sample.message is not None:
            try:
                self.answers = [self._votes.answer(sample.message)]
                agrees = self.answers == [decision.answer]
                outcome = f": it {'agrees' if agrees else 'does not agree'} with it"
            except Exception as error:  # of a response that nothing rests on
                outcome += f": {error!r}"
        self._notices = [*before, f"one more response was paid for to audit this answer{outcome}"]

    def notices(self, responses: Sequence[Response]) -> list[str]:
        """Return the notices of the responses that were decided on, and of this one."""
        return self._votes.notices(responses) if self._notices is None else self._notices
