"""The agreement rule: stop when the whole budget would hardly answer otherwise."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.decision import Decision, Reason, Response
from langchain_reasc.method.evidence import evidence_by_answer, leader, posterior
from langchain_reasc.method.horizon import stays_ahead
from langchain_reasc.method.partitions import LARGEST_HORIZON, Prior
from langchain_reasc.method.stopping import DEFAULT_BUDGET, StoppingRule

__all__ = ["Agreement"]


@dataclass(frozen=True)
class Agreement(StoppingRule):
    """Stop when P(the leader now is what the whole budget would answer | the counts) ≥ ``threshold``.

    The probability is exact for the prior, which is learned without labels from how often answers agree
    (:mod:`.partitions`); a response without an answer uses one of the calls that are left. It promises agreement with
    the majority of the whole budget. Where that is wrong, so is this. With nothing to look ahead to it does not stop: a
    spent budget is no agreement, and is left to :class:`~langchain_reasc.method.stopping.Cap`. The posterior is then
    that of Eq. 5.

    Where a signal deserves trust, ``vote`` weighs responses by it. The leader is then that of the weighted votes, and
    sampling also stops when they are sufficient; the counts stop it only where they have the same leader.

    Attributes:
        prior: how answers are expected to agree.
        threshold: θ, above one half.
        budget: responses in all, ``max_samples``. More than 24 answers are not looked ahead to: of a larger budget,
            the first 24 stand for all of it up to the 12th answer, and from then on the two leading answers decide, as
            in :class:`~langchain_reasc.method.horizon.FiniteHorizon`.
        vote: what weighs responses by their scores; None counts them.
    """

    called: ClassVar[str] = "agreement"
    prior: Prior
    threshold: float = 0.97
    budget: int = DEFAULT_BUDGET
    vote: StoppingRule | None = None

    def __post_init__(self) -> None:
        if not 0.5 < self.threshold < 1:
            raise ConfigurationError(f"threshold is a probability above 0.5 and below 1, got {self.threshold}")
        if self.budget < 1:
            raise ConfigurationError(f"a budget is at least 1 sample, got {self.budget}")

    @property
    def may_accept_first(self) -> bool:
        return self.vote is not None and self.vote.may_accept_first

    @property
    def reads_scores(self) -> bool:
        return self.vote is not None and self.vote.reads_scores

    def __call__(self, responses: Sequence[Response]) -> Decision:
        counted = self._counted(responses)
        if self.vote is None:
            return counted
        voted = self.vote(responses)
        if voted.stop or not counted.stop or voted.answer != counted.answer:
            return voted
        return replace(voted, stop=True, reason="agreement", posterior=counted.posterior)

    def weights(self, responses: Sequence[Response]) -> list[float]:
        """One for each response, or what the weighted vote gives it."""
        return super().weights(responses) if self.vote is None else self.vote.weights(responses)

    def _counted(self, responses: Sequence[Response]) -> Decision:
        """The decision with each vote as one, and P(the leader stays) for the posterior."""
        evidence = evidence_by_answer((response.answer, 1.0) for response in responses)
        answer = leader(evidence)
        counts = Counter(response.answer for response in responses if response.answer is not None)
        lead = 0 if answer is None else counts.pop(answer)
        stays = self.leader_stays(lead, list(counts.values()), max(0, self.budget - len(responses)))
        stop = stays >= self.threshold and not (len(responses) == 1 and responses[0].cut_off)
        reason: Reason | None = "agreement" if stop else None
        return Decision(stop, answer, reason, len(responses), evidence, stays or posterior(evidence))

    def leader_stays(self, lead: int, others: Sequence[int], left: int) -> float:
        """P(the leader now is what the whole budget would answer); 0 without an answer, or with nothing to come.

        Args:
            lead: votes of the leader.
            others: votes of each other answer.
            left: calls that are left.
        """
        known = lead + sum(others)
        if not lead or not left:
            return 0.0
        if known + left > LARGEST_HORIZON < 2 * known:  # it would look ahead less far than it has seen
            return stays_ahead(lead, max(others, default=0), left)
        return self.prior.leader_stays([lead, *others], min(known + left, LARGEST_HORIZON))
