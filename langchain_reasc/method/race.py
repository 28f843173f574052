"""Race: accept a small model's answer after equal votes; the first dissent sends the
question to a larger model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.decision import Decision, Reason, Response
from langchain_reasc.method.stopping import FirstAccepted, StoppingRule

__all__ = ["FirstConfident", "Race"]


@dataclass(frozen=True)
class Race(StoppingRule):
    """Accept an answer once the first ``votes`` responses give it; stop as
    ``contested`` at the first that does not.

    A response without an answer, and one that was cut off, count as dissent.

    Attributes:
        votes: equal votes that accept an answer.
        known: an answer that is known to be the larger model's. If the first response
            gives it, no further one is drawn, because no rule of this kind could then
            contradict that model.
    """

    name: ClassVar[str] = "race"
    votes: int = 3
    known: str | None = None

    def __post_init__(self) -> None:
        if self.votes < 1:
            raise ConfigurationError(f"a race needs at least 1 vote, got {self.votes}")

    @property
    def first_wave(self) -> int:
        # The second response may already be the dissent.
        return 1 if self.votes == 1 or self.known is not None else 2

    def __call__(self, responses: Sequence[Response]) -> Decision:
        tally = self.tally(responses)
        racing = responses[: self.votes]
        if any(_dissents(response, racing[0].answer) for response in racing):
            return replace(tally, stop=True, reason="contested")
        is_known = (
            len(responses) == 1
            and self.known is not None
            and racing[0].answer == self.known
        )
        if is_known or len(racing) == self.votes:
            return replace(tally, stop=True, reason="unanimous")
        return tally


def _dissents(response: Response, answer: str | None) -> bool:
    return (
        response.answer is None
        or response.answer != answer
        or response.cut_off
        or response.blank
    )


@dataclass(frozen=True)
class FirstConfident(StoppingRule):
    """Accept the first response if its score is at least ``threshold``; else stop as
    ``contested``.

    Attributes:
        threshold: the least score S(y) that is accepted.
    """

    name: ClassVar[str] = "first_confident"
    threshold: float

    @property
    def first_wave(self) -> int:
        return 1

    @property
    def reads_scores(self) -> bool:
        return True

    def __call__(self, responses: Sequence[Response]) -> Decision:
        if not responses:
            return self.tally(responses)
        accepted = FirstAccepted(self.threshold)(responses[:1]).stop
        reason: Reason = "gate" if accepted else "contested"
        return replace(self.tally(responses), stop=True, reason=reason)
