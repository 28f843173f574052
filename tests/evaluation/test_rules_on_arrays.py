"""Rules that look ahead to the budget, and the Bayesian vote, decide on arrays as they do question by question."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation.one_by_one import check_against_each
from langchain_reasc.evaluation import agreement_on_arrays, horizon_on_arrays  # noqa: F401  (arrays know these rules)
from langchain_reasc.evaluation.array_rules import after_each
from langchain_reasc.evaluation.decide_many import decide_many
from langchain_reasc.evaluation.vote_arrays import Votes
from langchain_reasc.exceptions import LogprobsUnavailable
from langchain_reasc.method.agreement import Agreement
from langchain_reasc.method.bayesian_vote import BayesianVote
from langchain_reasc.method.horizon import CannotCatchUp, FiniteHorizon
from langchain_reasc.method.odds import PointOdds
from langchain_reasc.method.partitions import Component, Prior
from langchain_reasc.method.stopping import ASC, Cap, Response, StoppingRule

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
responses = st.builds(
    Response,
    st.sampled_from([None, "a", "a", "b", "b", "c", "d"]),
    st.sampled_from([None, -2.0, -1.0, 0.0, 0.25, 1.0, 3.0]),  # few, so that weighted votes tie
    st.booleans(),
)


@pytest.mark.parametrize("rule", [*COUNTING, *RULES], ids=range(len(COUNTING) + len(RULES)))
@settings(max_examples=60)
@given(st.lists(st.lists(responses, max_size=12), min_size=1, max_size=6))
def test_decisions_are_those_question_by_question(rule: StoppingRule, pool: list[list[Response]]) -> None:
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
