"""Which answers of a small model may stand without asking a large one: learned from
questions that both were asked.

A question that both models are asked is *shadowed*. A rule *contradicts* the large
model on it if the rule accepts the small model's answer, the large model gives another,
and the large model, asked once more, repeats its own. The rule's answer then differs
from what the large model stands by. For any rule,

    P(rule ≠ large) - P(large ≠ large asked again) ≤ P(contradiction),

so that a bound on the rate of contradictions bounds how much more often the answer
differs from the large model's than the large model's own. Only the questions on which
an accepted answer differs, 2 to 5 % of them, need a second answer.

The rate of each rule is tested by betting (Waudby-Smith & Ramdas, "Estimating means of
bounded random variables by betting", JRSS-B 2024): the evidence against "the rate is
above ``within``" is a martingale that ever reaches 1/α with a probability of at most α,
so it may be read after every question. Rules are tested in a fixed order, from cautious
to bold (fixed-sequence testing): a rule is admitted only after those before it, and all
tests share one α.

The test needs questions in random order. Live, they come in topics and in blocks, and a
first easy topic admits a rule that the next topic refutes. So an admitted rule is on
trial, and more questions stay in the shadow, until those since its admission pass a
test of their own.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from langchain_reasc.calibration.drift import DriftMonitor
from langchain_reasc.method.decision import Decision, Response
from langchain_reasc.method.race import FirstConfident, Race
from langchain_reasc.method.stopping import StoppingRule, decide

__all__ = [
    "DEFAULT_RACE",
    "WITHIN",
    "Course",
    "LearnedEscalation",
    "Shadowed",
    "TestedRule",
    "rate_bound",
]

WITHIN: Final = 0.05
"""The default bound on the rate of contradictions."""
ALPHA: Final = 0.05
DEFAULT_RACE: Final = Race(3)
"""The rule by which the small model is sampled to learn, and votes where nothing is
learned. By itself it promises nothing.
"""
_VOTES: Final = (3, 2, 1)
_SHARES: Final = (0.25, 0.5, 0.75, 0.9)
"""The shares of first responses that the rules by confidence accept, in the order in
which they are tested.
"""
_FIRST_SCORES: Final = 32
"""How many first responses set the thresholds of the rules by confidence. They are not
tested on these.
"""
_BETS: Final = (0.02, 0.15, 0.3, 0.45, 0.6)
"""The rates, as shares of the bound, that the evidence bets on."""
_PATIENCE: Final = 160
"""The most shadowed questions that a first rule may be expected to need until it is
admitted.
"""
_PATIENCE_ONCE_ADMITTED: Final = 0.5
"""How many more a bolder rule may be expected to need, as a share of those so far."""
_OPTIMISM: Final = 1.5
"""By how many standard errors a rule may be better than it looks, to be given more
questions.
"""
_FEWEST_COSTS: Final = 8
"""Shadowed questions before the cost of a rule is judged."""
_TESTED_AT_ONCE: Final = 2
"""The rules not yet admitted for whose sake the large model is asked a second time."""
_PLAYED_OUT: Final = 4
"""One in so many shadowed questions is played out to know the costs, although its first
answer decides the test.
"""
_TRICKLE: Final = 0.03
"""The share of questions that is shadowed where no rule is likely to be admitted soon.
"""
_DOUBT: Final = 6.0
"""The evidence of drift from which on more questions are audited. Without
contradictions it stays below 3, and one contradiction lifts it to 13.
"""
_ALPHA_OF_TRIAL: Final = 0.2
"""The α of the second test, on the questions since the admission alone: 43 without a
contradiction end a trial at the default bound.
"""
_ALARM: Final = 100
"""The evidence of drift at which admissions are withdrawn. A rule that contradicts on
exactly ``within`` of the questions reaches it after 200 audits, on average and at
least.
"""
_AUDITED_IN_DOUBT: Final = 0.3
"""The share of questions that is audited while a rule is on trial, or in doubt."""
_PAYS: Final = 0.9
"""The cost of a rule, in answers of the large model, up to which the rule is worth a
test.
"""
_SAVING: Final = 0.03
"""What the next rule must save, in answers of the large model, to be worth more
questions in the shadow.
"""


@dataclass(frozen=True, slots=True)
class Shadowed:
    """A question that both models were asked.

    Attributes:
        small: answers of the small model in launch order, as numbers: equal numbers for
            equal answers, None for none.
        large: answers of the large model, numbered in the same way. There is a second
            one if the longest race accepts an answer other than the first.
        score: S(y) of the small model's first response; None if it is not read.
        right: whether the first answers of the small and of the large model are right;
            None if that is not known.
        costs: the cost of one response of the small model, and of one answer of the
            large model, in one unit.
    """

    small: tuple[int | None, ...]
    large: tuple[int | None, ...]
    score: float | None = None
    right: tuple[bool, bool] | None = None
    costs: tuple[float, float] = (0.0, 1.0)

    @property
    def agrees(self) -> bool:
        """Whether the small model's first answer is the large model's. No rule then
        contradicts.
        """
        return self.small[0] is not None and self.small[0] == self.large[0]

    def decision(self, rule: StoppingRule) -> Decision:
        """Return what a rule decides on the small model's answers."""
        responses: list[Response] = []
        for answer in self.small:
            text = None if answer is None else str(answer)
            # Only the first response was scored.
            score = None if responses else self.score
            responses.append(Response(text, score))
        return decide(rule, responses)

    @property
    def contradicts(self) -> bool:
        """Whether the small model's answer, if a rule accepts it, contradicts the large
        model.

        With labels: whether it is wrong where the large model is right.
        """
        if self.right is not None:
            return self.right == (False, True)
        if self.agrees:
            return False
        # Without a second answer, the large model counts as repeating its first.
        return len(self.large) < 2 or self.large[0] == self.large[1]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


_Pair = tuple[int, int]
"""A count over the shadowed questions on which the small model's first answer is the
large model's, and over all others.
"""


class TestedRule(_Record):
    """What is known of a rule.

    Attributes:
        rows: questions that it was tested on.
        played: those on which all its responses were drawn.
        samples: responses that it drew on these.
        accepted: questions on which it accepts an answer, of these.
        contradicted: questions on which it contradicts the large model.
        admitted: the number of the shadowed question after which it was admitted; None
            if it is not.
        since: questions since it was admitted, and contradictions among them.
        confirmed: the number of the shadowed question after which those since its
            admission passed their own test; None if they have not.
        drift: the evidence, since it was admitted, that it contradicts more often.
    """

    rows: _Pair = (0, 0)
    played: _Pair = (0, 0)
    samples: _Pair = (0, 0)
    accepted: _Pair = (0, 0)
    contradicted: int = Field(default=0, ge=0)
    admitted: int | None = None
    since: tuple[int, int] = (0, 0)
    confirmed: int | None = None
    drift: tuple[float, ...] = ()

    def after(self, row: Shadowed, rule: StoppingRule) -> "TestedRule":
        """Return what is known after one more question."""
        decision = row.decision(rule)
        accepts = decision.stop and decision.reason != "contested"
        is_played = decision.stop or not row.agrees
        samples = decision.samples if is_played else 0
        is_contradicted = accepts and row.contradicts
        questions, contradicted = self.since
        if self.admitted is not None:
            questions += 1
            contradicted += is_contradicted
        return self.model_copy(
            update={
                "since": (questions, contradicted),
                "rows": _added(self.rows, row, 1),
                "played": _added(self.played, row, int(is_played)),
                "samples": _added(self.samples, row, samples),
                "accepted": _added(self.accepted, row, int(accepts)),
                "contradicted": self.contradicted + is_contradicted,
            }
        )

    @property
    def is_on_trial(self) -> bool:
        """Whether it was admitted, and no second block of questions agrees yet."""
        return self.admitted is not None and self.confirmed is None

    @property
    def questions(self) -> int:
        """The questions that it was tested on."""
        return sum(self.rows)

    @property
    def share_accepted(self) -> float:
        """The share of questions on which it accepts an answer."""
        # Rounding may lift a mean of two shares above 1.
        return min(1.0, self._mean(self.accepted))

    def cost(self, small: float) -> float:
        """Return what a question costs by the rule, in answers of the large model.

        Args:
            small: the cost of a response of the small model, in answers of the large
                model.
        """
        return self._mean(self.samples) * small + 1 - self.share_accepted

    def _mean(self, sums: _Pair) -> float:
        """Return the mean over all questions: that over the played ones of each of the
        two groups, weighted by the size of the group.
        """
        mean = 0.0
        for rows, total, played in zip(self.rows, sums, self.played, strict=True):
            if played:
                mean += rows / self.questions * total / played
        return mean


@dataclass(frozen=True, slots=True)
class Course:
    """How one question is answered.

    Attributes:
        rule: the rule that accepts the small model's answer; None if the large model
            answers alone.
        shadowed: whether both models are asked, to learn. The large model's answer is
            then the result.
        learned: what was known of the two models before; None if nothing is learned.
    """

    rule: StoppingRule | None = None
    shadowed: bool = False
    learned: "LearnedEscalation | None" = None


class LearnedEscalation(_Record):
    """What is known of one small and one large model, for one kind of request. Each
    question makes a new one.

    Attributes:
        within: the bound on the rate of contradictions.
        scored: whether first responses have scores, so that rules by confidence are
            tested, too.
        rows: shadowed questions.
        tested: name of a rule -> what is known of it.
        first_scores: the scores that set the thresholds of the rules by confidence.
        costs: the sum of the costs of one response of the small model, and of one
            answer of the large one.
        restarts: how often drift made learning begin again.
        labelled: whether right answers said what contradicts.
    """

    within: float = Field(default=WITHIN, gt=0, lt=1)
    scored: bool = False
    rows: int = 0
    tested: Mapping[str, TestedRule] = {}
    first_scores: tuple[float, ...] = ()
    costs: tuple[float, float] = (0.0, 0.0)
    restarts: int = 0
    labelled: bool = False

    def after(self, row: Shadowed) -> "LearnedEscalation":
        """Return what is known after one more shadowed question. If a rule contradicts
        more often than it may, all that was known before is forgotten.
        """
        tested: dict[str, TestedRule] = {}
        for name, rule in self._rules.items():
            before = self._tested_rule(name)
            after = before.after(row, rule)
            if after.admitted is not None:
                monitor = DriftMonitor(after.drift, alarm=_ALARM)
                is_contradicted = after.contradicted > before.contradicted
                has_drifted = monitor.observe(
                    1 - self.within, 1.0 - is_contradicted, margin=0.0, lower_only=True
                )
                if has_drifted:
                    return LearnedEscalation(
                        within=self.within,
                        scored=self.scored,
                        restarts=self.restarts + 1,
                    )
                after = after.model_copy(update={"drift": monitor.detectors})
            tested[name] = after
        scores = self.first_scores
        if self.scored and len(scores) < _FIRST_SCORES and row.score is not None:
            scores = (*scores, row.score)
        small, large = self.costs
        learned = self.model_copy(
            update={
                "rows": self.rows + 1,
                "tested": tested,
                "first_scores": scores,
                "labelled": row.right is not None,
                "costs": (small + row.costs[0], large + row.costs[1]),
            }
        )
        return learned._admitting()

    def _admitting(self) -> "LearnedEscalation":
        """Admit the rules that the evidence allows, in order, and end the trials of
        those that the evidence since then confirms.
        """
        tested = dict(self.tested)
        for chain in self._chains:
            for name in chain:
                rule = self._tested_rule(name)
                if rule.is_on_trial and self._confirms(rule):
                    tested[name] = rule.model_copy(update={"confirmed": self.rows})
                if rule.admitted is not None:
                    continue
                if self._evidence(rule) < self._needed_evidence:
                    # Bolder rules wait for this one.
                    break
                tested[name] = rule.model_copy(update={"admitted": self.rows})
        return self.model_copy(update={"tested": tested})

    def _confirms(self, rule: TestedRule) -> bool:
        """Return whether the questions since the admission of a rule are evidence
        enough by themselves.
        """
        evidence = evidence_within(self.within, *rule.since)
        return evidence >= -math.log(_ALPHA_OF_TRIAL)

    @property
    def rule(self) -> str | None:
        """The name of the rule that decides: of the admitted ones, the one that costs
        least. None if none pays.
        """
        costs = {
            name: self.cost(name)
            for name, rule in self.tested.items()
            if rule.admitted is not None
        }
        cheapest = min(costs, key=costs.__getitem__, default=None)
        if cheapest is None or costs[cheapest] >= 1:
            return None
        return cheapest

    def rule_named(self, name: str) -> StoppingRule:
        """Return the rule with this name."""
        return self._rules[name]

    def course(self, drawn: float, audit: float) -> Course:
        """Return how the next question is answered.

        Args:
            drawn: a number from [0, 1) that was drawn for the question.
            audit: see :meth:`share`.
        """
        rule = None if self.rule is None else self._rules[self.rule]
        return Course(rule, drawn < self.share(audit), self)

    def share(self, audit: float) -> float:
        """Return the share of questions that both models are asked now.

        Args:
            audit: the share once a rule decides, and is neither on trial nor in doubt.
        """
        name = self.rule
        if self._is_promising(name):
            return 1.0
        if name is None:
            return _TRICKLE
        if self._tested_rule(name).is_on_trial or self._is_doubted:
            return max(audit, _AUDITED_IN_DOUBT)
        return audit

    @property
    def is_on_trial(self) -> bool:
        """Whether the rule that decides is on trial."""
        return self.rule is not None and self._tested_rule(self.rule).is_on_trial

    @property
    def _is_doubted(self) -> bool:
        """Whether an admitted rule may contradict more often than it did, so that more
        audits should tell.
        """
        return any(
            DriftMonitor(rule.drift).evidence > _DOUBT
            for rule in self.tested.values()
            if rule.drift
        )

    def shadow_rule(self, large: str | None) -> StoppingRule:
        """Return the rule by which the small model is sampled on the next shadowed
        question: the longest race.

        Args:
            large: the large model's answer. If the small model's first answer is the
                same, that decides all tests, and most questions are not played out.
        """
        played_out = self.rows < 2 * _FEWEST_COSTS or self.rows % _PLAYED_OUT == 0
        return Race(_VOTES[0], known=None if played_out else large)

    def asks_again(self, row: Shadowed) -> bool:
        """Return whether a second answer of the large model is worth its price, to test
        the rules that are next.

        Without it, a rule that accepts another answer than the first counts as
        contradicting.
        """
        if row.agrees or row.right is not None:
            return False
        for chain in self._chains:
            admitted = [
                name for name in chain if self._tested_rule(name).admitted is not None
            ]
            for name in chain[: len(admitted) + _TESTED_AT_ONCE]:
                if row.decision(self._rules[name]).reason in ("unanimous", "gate"):
                    return True
        return False

    def cost(self, name: str) -> float:
        """Return what a question costs by a rule, in answers of the large model;
        learning is not counted.
        """
        small, large = self.costs
        ratio = small / large if large else 0.0
        return self._tested_rule(name).cost(ratio)

    def _is_promising(self, name: str | None) -> bool:
        """Return whether a rule that would pay is likely to be admitted soon.

        Args:
            name: the rule that decides now; None if none does.
        """
        lacks_thresholds = self.scored and len(self.first_scores) < _FIRST_SCORES
        if lacks_thresholds and self.rows < 2 * _FIRST_SCORES:
            return True
        if name is None:
            if self.rows < _FEWEST_COSTS:
                # One contradiction is no reason to give up.
                return True
            patience: float = _PATIENCE
            most_cost = _PAYS
        else:
            patience = self.rows * _PATIENCE_ONCE_ADMITTED
            most_cost = self.cost(name) - _SAVING
        for chain in self._chains:
            following = [
                name for name in chain if self._tested_rule(name).admitted is None
            ]
            if (
                following
                and self._expected_questions(following[0]) <= patience
                and self._least_cost(following[0]) <= most_cost
            ):
                return True
        return False

    def _least_cost(self, name: str) -> float:
        """Return the cost of a rule as low as 1.5 standard errors allow."""
        rule = self._tested_rule(name)
        if rule.questions < _FEWEST_COSTS:
            return 0.0
        error = _standard_error(rule.share_accepted, rule.questions)
        return self.cost(name) - _OPTIMISM * error

    def _expected_questions(self, name: str) -> float:
        """Return how many more questions the admission of a rule takes, if its rate is
        1.5 standard errors below the rate so far.
        """
        rule = self._tested_rule(name)
        rate = 0.0
        if rule.questions:
            # Half a contradiction more, or none so far would have no error.
            shrunk = (rule.contradicted + 0.5) / (rule.questions + 1)
            error = _standard_error(shrunk, rule.questions)
            rate = max(0.0, rule.contradicted / rule.questions - _OPTIMISM * error)
        gain = max(_gain(rate, bet * self.within, self.within) for bet in _BETS)
        if gain <= 0:
            return math.inf
        return (self._needed_evidence - self._evidence(rule)) / gain

    def _evidence(self, rule: TestedRule) -> float:
        return evidence_within(self.within, rule.questions, rule.contradicted)

    @property
    def _alpha(self) -> float:
        # Rules by votes and rules by confidence are two sequences of tests.
        return ALPHA / 2 if self.scored else ALPHA

    @property
    def _needed_evidence(self) -> float:
        """The evidence that admits a rule."""
        return -math.log(self._alpha)

    def _tested_rule(self, name: str) -> TestedRule:
        return self.tested.get(name, TestedRule())

    @property
    def _rules(self) -> Mapping[str, StoppingRule]:
        """The rules that are tested, by name. Those by confidence need their thresholds
        first.
        """
        if len(self.first_scores) < _FIRST_SCORES:
            return _rules_by(())
        return _rules_by(self.first_scores)

    @property
    def _chains(self) -> list[list[str]]:
        """The names of the rules in the order of their tests: by votes, by confidence."""
        names = list(self._rules)
        return [names[: len(_VOTES)], names[len(_VOTES) :]]

    @property
    def status(self) -> str:
        """What decides now, and why, in one line."""
        if self.rule is not None:
            promise = self.promise(self.rule)
            return f"{promise}; {self.trial}" if self.trial else promise
        plural = "" if self.rows == 1 else "s"
        asked = f"{self.rows} question{plural} that both models were asked"
        if self._is_promising(None):
            return f"learning from {asked}: the large model answers"
        first_rules = (chain[0] for chain in self._chains if chain)
        likeliest = min(first_rules, key=self._expected_questions)
        if self._least_cost(likeliest) > _PAYS:
            reason = f"would cost {self.cost(likeliest):.0%} of its price"
        else:
            rule = self._tested_rule(likeliest)
            reason = (
                f"{self._contradict} on {rule.contradicted} of {rule.questions} "
                "questions"
            )
        return f"the large model answers alone, by {asked}: {likeliest} {reason}"

    @property
    def trial(self) -> str | None:
        """Why the rule that decides is on trial; None if it is not."""
        if self.rule is None or not self.is_on_trial:
            return None
        questions, contradicted = self._tested_rule(self.rule).since
        return (
            f"on trial, with contradictions on {contradicted} of {questions} questions "
            f"since its admission: learning asks both models {_AUDITED_IN_DOUBT:.0%} of "
            "the questions until these are evidence enough by themselves"
        )

    def status_changed(self, before: "LearnedEscalation") -> bool:
        """Return whether another rule decides than before, or is no longer on trial, or
        it was given up, or taken up again, to find one.
        """
        if self.rule != before.rule or self.is_on_trial != before.is_on_trial:
            return True
        return self._is_promising(self.rule) != before._is_promising(before.rule)

    def promise(self, name: str) -> str:
        """Say what a rule promises, and what that rests on."""
        rule = self._tested_rule(name)
        contradicts = "contradicts an answer that the large model stands by"
        if self.labelled:
            contradicts = "is wrong where the large model is right"
        return (
            f"{name}, else the large model: {contradicts} on {rule.contradicted} of "
            f"{rule.questions} questions, so on at most {self.bound(name):.1%} of "
            f"questions in random order ({1 - ALPHA:.0%} confidence)"
        )

    def plain_words(self) -> tuple[str, str | None]:
        """Return what to expect of a small model before a large one, and what to do
        next; None: use it.
        """
        if self.rule is None:
            verdict = "Nothing is saved so far: the large model answers every question."
            advice = (
                "ask more questions, allow more contradictions (within=0.1), or take "
                "another small model"
            )
            return verdict, advice
        verdict = (
            f"Expect {self.cost(self.rule):.0%} of the price of the large model alone: "
            f"{self.rule} of the small one may stand, and at most "
            f"{self.bound(self.rule):.1%} of the answers {self._contradict}, if "
            "questions come in random order."
        )
        return verdict, None

    @property
    def _contradict(self) -> str:
        """What answers of the small model do that contradict the large model."""
        return "are wrong where it is right" if self.labelled else "contradict it"

    def bound(self, name: str) -> float:
        """Return the bound on the rate at which a rule contradicts the large model, as
        far as it is known now.
        """
        rule = self._tested_rule(name)
        bound = rate_bound(rule.questions, rule.contradicted, self._alpha)
        if rule.admitted is None:
            return bound
        # Either holds at any time.
        return min(self.within, bound)

    @property
    def rules(self) -> Mapping[str, TestedRule]:
        """What is known of each rule, in the order in which they are tested."""
        return {name: self._tested_rule(name) for name in self._rules}


@lru_cache(maxsize=64)  # they are looked up several times a question
def _rules_by(first_scores: tuple[float, ...]) -> Mapping[str, StoppingRule]:
    rules: dict[str, StoppingRule] = {}
    for votes in _VOTES:
        plural = "" if votes == 1 else "s"
        rules[f"{votes} equal vote{plural}"] = Race(votes)
    if first_scores:
        thresholds = np.quantile(first_scores, 1 - np.array(_SHARES)).tolist()
        for share, threshold in zip(_SHARES, thresholds, strict=True):
            name = f"the {share:.0%} most confident first responses"
            rules[name] = FirstConfident(threshold)
    return rules


def evidence_within(within: float, rows: int, contradicted: int) -> float:
    """Return the log of the evidence that a rate is below ``within``: the mean of bets
    on lower rates.
    """
    others = rows - contradicted
    bets = [
        contradicted * math.log(bet)
        + others * math.log((1 - bet * within) / (1 - within))
        for bet in _BETS
    ]
    # The logarithm of a mean, without overflow.
    largest = max(bets)
    mean = sum(math.exp(bet - largest) for bet in bets) / len(bets)
    return largest + math.log(mean)


def rate_bound(rows: int, contradicted: int, alpha: float = ALPHA) -> float:
    """Return the upper bound of a rate that holds after every question at once, with
    confidence 1 - ``alpha``.
    """
    low = 0.0
    high = 1.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        if evidence_within(middle, rows, contradicted) >= -math.log(alpha):
            high = middle
        else:
            low = middle
    return high


def _standard_error(share: float, count: int) -> float:
    return math.sqrt(share * (1 - share) / count)


def _gain(rate: float, bet: float, within: float) -> float:
    """Return by how much the log of the evidence grows with a question, on average, at
    this rate.
    """
    if_contradicted = math.log(bet / within)
    otherwise = math.log((1 - bet) / (1 - within))
    return rate * if_contradicted + (1 - rate) * otherwise


def _added(pair: _Pair, row: Shadowed, count: int) -> _Pair:
    """Add to the count of the group that a question belongs to."""
    agreeing, others = pair
    if row.agrees:
        return agreeing + count, others
    return agreeing, others + count
