"""Deciding on many questions at once is deciding on each of them: hypothesis over rules, ties, gaps and lengths."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_reasc_lab.replay import agreement_on_arrays, horizon_on_arrays  # noqa: F401  (arrays know these rules)
from langchain_reasc_lab.replay.array_rules import Verdicts, after_each, on_arrays
from langchain_reasc_lab.replay.decide_many import decide_many
from langchain_reasc_lab.replay.vote_arrays import Votes, numbered, tally

from lab.replay.one_by_one import check_against_each
from langchain_reasc.exceptions import ConfigurationError, LogprobsUnavailable
from langchain_reasc.method.agreement import Agreement
from langchain_reasc.method.bayesian_vote import BayesianVote
from langchain_reasc.method.evidence import WEIGHTS, Standardizer
from langchain_reasc.method.fields import ByField
from langchain_reasc.method.horizon import CannotCatchUp, FiniteHorizon
from langchain_reasc.method.odds import PointOdds
from langchain_reasc.method.partitions import Component, Prior
from langchain_reasc.method.stopping import ASC, ESC, Cap, Decision, ReASC, Response, StoppingRule

confidences = st.floats(0.51, 0.999) | st.sampled_from([0.75, 0.875, 0.9375, 0.95])
finite = st.floats(-3, 3) | st.sampled_from([0.0, 1.0])
statistics = st.builds(Standardizer, st.floats(0.1, 2), st.floats(0.1, 2), st.floats(0.1, 3))
reasc = st.builds(
    ReASC,
    statistics,
    gate=st.none() | finite,
    weight=st.sampled_from(sorted(WEIGHTS)),
    confidence=confidences,
    on_missing_confidence=st.just("count"),
)
simple = (
    st.builds(Cap, st.integers(1, 12)) | st.builds(ASC, confidences) | st.builds(ESC, st.integers(1, 5)) | reasc | reasc
)
rules = st.recursive(
    simple,
    lambda some: st.builds(lambda a, b: a | b, some, some) | st.builds(lambda a, b: a & b, some, some),
    max_leaves=4,
)
plain = st.builds(Response, st.sampled_from([None, "a", "b", "b", "c", "d"]), st.none() | finite, st.booleans())
special = st.builds(
    Response,
    st.sampled_from([None, "a", "b"]),
    finite,
    kind=st.sampled_from([None, "x", "y"]),
    alone=st.sampled_from([False, False, False, True]),
)
questions = st.lists(st.lists(plain, max_size=12), max_size=6)


@settings(max_examples=400)
@given(rules, questions)
def test_every_rule_decides_as_it_does_one_by_one(rule: StoppingRule, pool: list[list[Response]]) -> None:
    assert not pool or not pool[0] or after_each(rule, Votes.of(pool)) is not None, "not on arrays"
    check_against_each(rule, pool)


@settings(max_examples=100)
@given(rules, questions, st.lists(st.lists(special, max_size=8), max_size=3))
def test_questions_with_kinds_are_decided_one_by_one(
    rule: StoppingRule, pool: list[list[Response]], more: list[list[Response]]
) -> None:
    check_against_each(rule, pool + more, range(len(pool), len(pool) + len(more)))


def test_objects_by_field_are_decided_one_by_one() -> None:
    one, other = (Response(f'{{"a": {n}}}', fields={"a": str(n)}) for n in (1, 2))
    objects = [[one, other, one], [one, other], [Response("x"), Response("x")]]
    assert after_each(ByField(Cap(2)), Votes.of(objects)) is None
    check_against_each(ByField(Cap(2)), objects)
    check_against_each(ByField(Cap(2)) | ESC(1), objects)
    check_against_each(ASC() & ByField(Cap(2)), objects)


def test_a_missing_score_is_an_error_only_where_sampling_gets_there() -> None:
    rule = ReASC(Standardizer(0.0, 1.0), gate=1.0) | Cap(4)
    accepted, refused = [Response("a", 2.0), Response("a")], [Response("a", 0.0), Response("a")]
    check_against_each(rule, [accepted])
    with pytest.raises(LogprobsUnavailable):
        check_against_each(rule, [accepted, refused])


def test_weights_by_a_mean_below_zero_are_an_error_only_where_something_is_weighed() -> None:
    rule = ReASC(Standardizer(-1.0, 1.0), weight="mean", on_missing_confidence="count") | Cap(4)
    check_against_each(rule, [[Response("a"), Response(None, 2.0)]])
    with pytest.raises(ConfigurationError):
        check_against_each(rule, [[Response("a", 2.0)]])


class Hurried(ASC):
    """Decides otherwise than the class it is made of."""

    def __call__(self, responses: Sequence[Response]) -> Decision:
        return Cap(2)(responses)


class Ahead(StoppingRule):
    """Stops once the leader is three votes ahead."""

    called = "ahead"

    def __call__(self, responses: Sequence[Response]) -> Decision:
        tally = self._tally(responses)
        first, second = [*sorted(tally.evidence.values(), reverse=True)[:2], 0.0, 0.0][:2]
        return self._tally(responses, "agreement") if first - second >= 3 else tally


def test_a_rule_that_is_not_on_arrays_decides_for_itself_and_can_be_put_on_them() -> None:
    rng = np.random.default_rng(0)
    pool = [[Response("abc"[at]) for at in rng.integers(0, 3, size)] for size in rng.integers(0, 17, 200)]
    for rule in (Hurried(), Hurried() | Cap(9), Ahead() | Cap(12)):
        assert after_each(rule, Votes.of(pool)) is None
        check_against_each(rule, pool)

    @on_arrays(Ahead)
    def _ahead(rule: Ahead, votes: Votes) -> Verdicts:
        counts = tally(votes)
        return Verdicts.stopping(counts, counts.first - counts.second >= 3, "agreement")

    assert after_each(Ahead() | Cap(12), Votes.of(pool)) is not None
    check_against_each(Ahead() | Cap(12), pool)
    check_against_each(ASC() & Ahead() | Cap(12), pool)


def test_a_tally_is_the_evidence_after_each_response_to_the_last_bit() -> None:
    rng = np.random.default_rng(1)
    pool = [[Response("abcd"[at]) for at in rng.integers(0, 4, 16)] for _ in range(50)]
    votes, weights = Votes.of(pool), rng.exponential(3, (50, 16))
    sums = tally(votes, weights)

    class Weighed(Cap):
        def weights(self, responses: Sequence[Response]) -> list[float]:
            return weights[self.samples, : len(responses)].tolist()

    for at, responses in enumerate(pool[1:], start=1):
        for n in range(1, 17):
            decision = Weighed(at)(responses[:n])
            assert list(decision.evidence.values()) == sums.evidence[at, n - 1, : len(decision.evidence)].tolist()
            assert decision.posterior == sums.posterior[at, n - 1]
            assert list(decision.evidence).index(decision.answer or "") == sums.leader[at, n - 1]


def test_answers_are_numbered_as_they_appear() -> None:
    assert numbered(np.array([[7, -1, 3, 7, 0, 3], [-1, -1, 2, 2, 2, -1]])).tolist() == [
        [0, -1, 1, 0, 2, 1],
        [-1, -1, 0, 0, 0, -1],
    ]


TWO_KINDS = Prior((Component(0.3, 1.0), Component(-1.0, 3.0)), (0.6, 0.4))
PRIOR = Prior.uniform()
ODDS = PointOdds(((-1.0, -2.0), (0.0, 0.0), (1.0, 2.0)), average=0.3)
VOTE = BayesianVote(ODDS, 0.9, alternatives=2.0, on_missing_confidence="count")
COUNTING = [
    FiniteHorizon(0.97),
    FiniteHorizon(0.8, budget=10),
    FiniteHorizon(0.6, budget=40),
    FiniteHorizon(0.95, budget=1),
    CannotCatchUp(),
    CannotCatchUp(budget=5),
    CannotCatchUp(budget=1),
    ASC() | CannotCatchUp(budget=9),
    FiniteHorizon(0.7, budget=9) & ASC(0.9),
    Agreement(TWO_KINDS),
    Agreement(TWO_KINDS, 0.7, budget=8),
    Agreement(TWO_KINDS, 0.6, budget=1),
    Agreement(TWO_KINDS, 0.6, budget=40),
]
RULES = [
    Agreement(PRIOR, 0.8),
    Agreement(PRIOR, 0.6, budget=9),
    Agreement(PRIOR, 0.9, budget=40),
    Agreement(PRIOR, 0.9, budget=1),
    Agreement(Prior((Component(0.0, 1e-3),), (1.0,))),
    VOTE,
    Agreement(PRIOR, 0.7, vote=VOTE),
    Agreement(PRIOR, 0.9, budget=9, vote=VOTE),
    ASC() | Agreement(PRIOR, 0.9),
]
tying = st.builds(
    Response,
    st.sampled_from([None, "a", "a", "b", "b", "c", "d"]),
    st.sampled_from([None, -2.0, -1.0, 0.0, 0.25, 1.0, 3.0]),  # few, so that weighted votes tie
    st.booleans(),
)


@pytest.mark.parametrize("rule", [*COUNTING, *RULES], ids=range(len(COUNTING) + len(RULES)))
@settings(max_examples=60)
@given(st.lists(st.lists(tying, max_size=12), min_size=1, max_size=6))
def test_rules_that_look_ahead_and_the_bayesian_vote_decide_alike(
    rule: StoppingRule, pool: list[list[Response]]
) -> None:
    votes = Votes.of(pool)
    assert not votes.width or after_each(rule, votes) is not None, "not on arrays"
    check_against_each(rule, pool)
    check_against_each(rule | Cap(9), pool)


def test_where_a_missing_score_is_an_error_it_stays_one() -> None:
    rule = Agreement(PRIOR, vote=BayesianVote(ODDS, 0.9))
    pool = [[Response("a", None), Response("a", 1.0)], [Response(None, None), Response("a", 3.0)]]
    assert after_each(rule, Votes.of(pool)) is None
    with pytest.raises(LogprobsUnavailable):
        decide_many(rule, Votes.of(pool), pool.__getitem__)
    assert after_each(rule, Votes.of(pool[1:])) is not None  # it casts no vote
