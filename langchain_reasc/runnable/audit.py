"""One more response after the decision, now and then: does it agree with the answer?"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from langchain_reasc.method.stopping import Decision, Response
from langchain_reasc.sampling import Sample

if TYPE_CHECKING:
    from langchain_reasc.runnable.votes import Votes

__all__ = ["Audit"]


class Audit:
    """An audit of one decision, which that does not rest on.

    Args:
        wanted: whether this question is audited, if its rule decides.
    """

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self._index: int | None = None
        self._before: list[str] | None = None
        self._notice = ""
        self.answer: str | None = None
        self.answered = False

    def due(self, decision: Decision | None) -> bool:
        """Whether the response is yet to be launched, given what was decided."""
        by_rule = decision is not None and decision.reason not in ("budget", "timeout", "alone", "hopeless")
        return self._wanted and self._index is None and by_rule

    def launch(self, index: int) -> None:
        """It is the sample of this index."""
        self._index = index

    def take(self, sample: Sample, decision: Decision, votes: "Votes", seen: Sequence[Response]) -> None:
        """Read a sample, if it is the one."""
        if sample.index != self._index:
            return
        self._before = votes.notices(seen)
        self._notice = "one more response was paid for to audit this answer, and came to nothing"
        if sample.status != "complete" or sample.message is None:
            return
        try:
            self.answer = votes.answer(sample.message)
        except Exception as error:  # of a response that nothing rests on
            self._notice += f": {error!r}"
            return
        self.answered = True
        agrees = "agrees with it" if self.answer == decision.answer else "does not agree with it"
        self._notice = f"one more response was paid for to audit this answer: it {agrees}"

    def told(self, votes: "Votes", seen: Sequence[Response]) -> list[str]:
        """Notices of the responses that were decided on, and of this one."""
        before = votes.notices(seen) if self._before is None else self._before
        return [*before, self._notice] if self._notice else before
