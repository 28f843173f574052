"""Notice that votes will come to nothing: responses have no answer, or part of it
differs in each.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.method.agreement import default_components, likelihoods
from langchain_reasc.method.decision import BLANK, Decision, Response
from langchain_reasc.method.stopping import Around, Cap, StoppingRule, Supported

__all__ = [
    "UNANSWERED",
    "NeverAgrees",
    "Unanswered",
    "chance_of_agreement",
    "rule_in_use",
]

UNANSWERED: Final = 4
"""The fewest responses after which sampling stops as ``unanswered``, unless they are
refused alike.
"""
_REFUSED_ALIKE: Final = 3

_PAIRS_PER_CHOICE: Final = 3
_MOST_CHOICES: Final = 8
_PIECE: Final = re.compile(r"\S{1,8}")  # a word, or as much of a text without spaces


@dataclass(frozen=True)
class NeverAgrees(StoppingRule):
    """Apply a rule to answers with named parts, and stop too where the parts that
    disagree always will.

    A part, such as the argument ``body`` of a call, never agrees if
    :func:`chance_of_agreement` is below ``chance``. Sampling stops once the rule is
    satisfied with the answers without such parts. The answer is then the best response
    that agrees in the rest. It is no decision: the reason is ``hopeless``, and the
    answer counts as undecided.

    Attributes:
        rule: decides on the answers.
        parts: the parts of an answer, name -> spelling; None for an answer that has
            none.
        budget: responses in all.
        chance: how likely agreement must be for sampling to go on.
    """

    name: ClassVar[str] = "never_agrees"
    rule: StoppingRule
    parts: Callable[[str], Mapping[str, str] | None]
    budget: int
    chance: float = 0.03

    def __call__(self, responses: Sequence[Response]) -> Decision:
        decision = self.rule(responses)
        if decision.stop:
            return decision
        parts_of = self._parts(responses)
        left = self.budget - len(responses)
        never = self._never_agree(list(parts_of.values()), left)
        if not never:
            return decision
        rests = {index: _without(parts, never) for index, parts in parts_of.items()}
        votes_on_rest = [
            response if response.blank else response.voting(rests.get(index))
            for index, response in enumerate(responses)
        ]
        agreed = self.rule(votes_on_rest)
        if not agreed.stop or agreed.answer == BLANK:
            return decision
        weights = self.weights(responses)
        agreeing = (index for index, rest in rests.items() if rest == agreed.answer)
        best = responses[max(agreeing, key=weights.__getitem__)]
        return replace(
            decision,
            stop=True,
            reason="hopeless",
            answer=best.answer,
            never_agrees=never,
        )

    def weights(self, responses: Sequence[Response]) -> list[float]:
        """Return those of the rule."""
        return self.rule.weights(responses)

    def _parts(self, responses: Sequence[Response]) -> dict[int, Mapping[str, str]]:
        """Return the parts of each response that votes; nothing if one has none, or if
        fewer than two vote.
        """
        by_index: dict[int, Mapping[str, str]] = {}
        for index, response in enumerate(responses):
            if response.answer is None or response.blank:
                continue
            parts = self.parts(response.answer)
            if parts is None:
                return {}
            by_index[index] = parts
        return by_index if len(by_index) >= 2 else {}

    def _never_agree(
        self, voting: Sequence[Mapping[str, str]], left: int
    ) -> tuple[str, ...]:
        """Return the names of the parts that will hardly ever agree."""
        names: dict[str, None] = {}  # in the order in which they first come
        for parts in voting:
            names.update(dict.fromkeys(parts))
        never: list[str] = []
        for name in names:
            values = [parts.get(name, "") for parts in voting]
            if chance_of_agreement(values, left, enough=self.chance) < self.chance:
                never.append(name)
        return tuple(never)


@dataclass(frozen=True)
class Unanswered(Around):
    """Apply a rule to answers and to "no answer", which is one more candidate but never
    wins.

    Each blank response is one vote for that candidate, whatever its score. So an answer
    must beat the blank responses as it must beat another answer. While they are ahead,
    sampling continues, as long as any response has an answer: on recordings, the answer
    that a few responses give is often right. If the budget ends, the answer is the one
    that leads without them, and the posterior is the probability that they fall behind.

    Sampling stops with the reason ``unanswered`` if no response has an answer after
    four, whatever the reason: cut off, empty, filtered, malformed, refused. Four are
    what a clear question costs, too. A model that answers with chance p is stopped so
    with (1 − p)⁴: .06 at p = .5, .24 at .3. But then few answers could be decided: more
    than half of 16 responses give one after four that do not on .6 % of the questions
    at most (p = .6). Three that are refused alike are enough (the same calls, or calls
    of the same unknown tools), as the model alone would be refused so, too, and an
    agent tells it why.

    Attributes:
        rule: decides on the answers.
    """

    name: ClassVar[str] = "unanswered"
    rule: StoppingRule

    def __call__(self, responses: Sequence[Response]) -> Decision:
        with_blanks = [
            replace(response, answer=BLANK, score=None) if response.blank else response
            for response in responses
        ]
        decision = self.rule(with_blanks)
        if decision.answer == BLANK:
            decision = self._decide_behind(decision, responses)
        if BLANK in decision.evidence:
            evidence = dict(decision.evidence)
            del evidence[BLANK]
            decision = replace(decision, evidence=evidence)
        if not decision.stop and _comes_to_nothing(responses):
            return replace(decision, stop=True, reason="unanswered")
        return decision

    def _decide_behind(
        self, blanks: Decision, responses: Sequence[Response]
    ) -> Decision:
        """Return the decision on the answers, which are behind the blank responses."""
        without_blanks = [replace(response, blank=False) for response in responses]
        answers = self.rule(without_blanks)
        # Only what ends sampling without a decision, such as the budget, ends it here.
        is_ended = blanks.stop and blanks.undecided
        return replace(
            answers,
            posterior=1.0 - blanks.posterior,
            stop=is_ended,
            reason=blanks.reason if is_ended else None,
            never_agrees=(),
        )


def _comes_to_nothing(responses: Sequence[Response]) -> bool:
    """Return whether no response has an answer, and further ones would hardly have one."""
    if any(response.answer is not None for response in responses):
        return False
    if len(responses) >= UNANSWERED:
        return True
    refused = Counter(response.instead for response in responses if response.instead)
    return max(refused.values(), default=0) >= _REFUSED_ALIKE


def rule_in_use(
    rule: StoppingRule,
    budget: int,
    *,
    min_share: float | None = None,
    over_parts: Callable[[StoppingRule], StoppingRule] | None = None,
) -> StoppingRule:
    """Return a rule as questions are decided by it, live or replayed: within a budget,
    with "no answer" as a candidate.

    A fixed budget is spent whatever comes. For ``min_share`` see
    :class:`~.stopping.Supported`; ``over_parts`` makes of the rule the one that decides
    on answers with parts, such as calls.
    """
    capped: StoppingRule = rule | Cap(budget)
    if min_share is not None:
        capped = Supported(capped, min_share, budget)
    if over_parts is not None:
        capped = over_parts(capped)
    if rule.name == Cap.name:
        return capped
    return Unanswered(capped) | Cap(budget)


def chance_of_agreement(
    values: Sequence[str], left: int, *, enough: float = 1.0
) -> float:
    """Return how likely values that all differ so far agree yet: that one has a quarter
    of the votes in the end.

    It is an upper bound, and 1 where two values are equal. Values come as in the
    mixture of Pitman–Yor processes of :mod:`.agreement`. How often two of them agree,
    q, is thought to depend on how much is chosen anew in each: a text in which w
    choices are made, in each of which two responses agree with probability a, agrees
    with another with q = a^w. With a uniform in (0, 1), the density of q is that of
    Beta(1/w, 1): one word may agree with any probability, a letter of 100 words nearly
    always or hardly ever. By that density the components are weighted, each for its own
    q = (1 − d) / (1 + α); the probability that q is below all of theirs is that of a
    process whose values never agree.

    Of two consecutive values, the pairs of neighbouring words are counted that only one
    of them has. Where there are fewest, one in three is taken to be a choice, and no
    more than eight in all: at a low temperature, a model may repeat a long text. The
    number of a value's votes to come is Beta-binomial in each component, and the sum
    over all values, those still to come as well, is at least the probability that one
    of them gets there.

    Args:
        values: of the responses so far, in launch order; at least one.
        left: responses to come.
        enough: a chance that is not below this need not be exact.
    """
    if len(values) < 2 or len({*values}) < len(values) or left <= 0:
        return 1.0
    least = _chance(len(values), left, _MOST_CHOICES)
    if least >= enough:  # long texts need not be compared
        return least
    differing = min(
        _differing(value, next_value) for value, next_value in pairwise(values)
    )
    choices = max(1, differing // _PAIRS_PER_CHOICE)
    return _chance(len(values), left, min(_MOST_CHOICES, choices))


@lru_cache(maxsize=1024)
def _chance(values_so_far: int, left: int, choices: int) -> float:
    # Deferred: heavy. scipy.stats, which has the distribution, is heavier.
    from scipy.special import betaln, gammaln

    components = default_components()
    discount, concentration = np.asarray(components).T
    agreeing = (1 - discount) / (1 + concentration)
    never = float(agreeing.min() ** (1 / choices))
    prior = agreeing ** (1 / choices - 1)
    likelihood = likelihoods([(1,) * values_so_far], components)[0]
    weights = (1 - never) * prior / prior.sum() * likelihood
    needed = max(2, -(-(values_so_far + left) // 4))
    values = np.full(len(components), float(values_so_far))

    def reach(votes: int, count: int) -> npt.NDArray[np.float64]:
        """Return P(a value with one vote of ``count`` gets that many more),
        Beta-binomial, of each component.
        """
        trials = values_so_far + left - count
        a = 1 - discount
        b = count - 1 + concentration + discount
        more = np.arange(votes, trials + 1)[:, None]
        ways = gammaln(trials + 1) - gammaln(more + 1) - gammaln(trials - more + 1)
        chances = np.exp(ways + betaln(more + a, trials - more + b) - betaln(a, b))
        reached: npt.NDArray[np.float64] = chances.sum(axis=0)
        return reached

    chance = values_so_far * reach(needed - 1, values_so_far)
    # A value that comes for the first time among the further responses.
    for count in range(values_so_far, values_so_far + left):
        new = np.maximum(
            (concentration + discount * values) / (count + concentration), 0.0
        )
        values = values + new
        chance = chance + new * reach(needed - 1, count + 1)
    return float(weights @ np.minimum(chance, 1.0) / (weights.sum() + never))


@lru_cache(maxsize=64)
def _differing(text: str, other_text: str) -> int:
    """Return how many pairs of neighbouring words one of two texts has, and the other
    has not.
    """
    pairs = Counter(pairwise(_PIECE.findall(text)))
    other_pairs = Counter(pairwise(_PIECE.findall(other_text)))
    return max((pairs - other_pairs).total(), (other_pairs - pairs).total())


def _without(parts: Mapping[str, str], names: Sequence[str]) -> str:
    rest = {name: value for name, value in parts.items() if name not in names}
    return json.dumps(rest, sort_keys=True)
