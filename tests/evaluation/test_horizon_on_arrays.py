"""Rules that look ahead to the budget decide on arrays as they do question by question."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_reasc.evaluation import agreement_on_arrays, horizon_on_arrays  # noqa: F401  (arrays know these rules)
from langchain_reasc.evaluation.array_rules import GOES_ON, REASONS, after_each
from langchain_reasc.evaluation.decide_many import decide_many
from langchain_reasc.evaluation.vote_arrays import Votes
from langchain_reasc.method.agreement import Agreement
from langchain_reasc.method.horizon import CannotCatchUp, FiniteHorizon
from langchain_reasc.method.partitions import Component, Prior
from langchain_reasc.method.stopping import ASC, Cap, Response, StoppingRule, decide

PRIOR = Prior((Component(0.3, 1.0), Component(-1.0, 3.0)), (0.6, 0.4))
RULES = [
    FiniteHorizon(0.97),
    FiniteHorizon(0.8, budget=10),
    FiniteHorizon(0.6, budget=40),
    FiniteHorizon(0.95, budget=1),
    CannotCatchUp(),
    CannotCatchUp(budget=5),
    CannotCatchUp(budget=1),
    ASC() | CannotCatchUp(budget=9),
    FiniteHorizon(0.7, budget=9) & ASC(0.9),
    Agreement(PRIOR),
    Agreement(PRIOR, 0.7, budget=8),
    Agreement(PRIOR, 0.6, budget=1),
    Agreement(PRIOR, 0.6, budget=40),
]
answers = st.lists(st.sampled_from([None, "a", "a", "b", "b", "c", "d"]), max_size=12)


@pytest.mark.parametrize("rule", RULES, ids=str)
@given(st.lists(answers, min_size=1, max_size=8))
def test_decisions_are_those_question_by_question(rule: StoppingRule, pool: list[list[str | None]]) -> None:
    responses = [[Response(answer) for answer in question] for question in pool]
    votes = Votes.of(responses)
    assert not votes.width or after_each(rule, votes) is not None, "not on arrays"
    for capped in (rule, rule | Cap(9)):
        made = decide_many(capped, votes, responses.__getitem__)
        for at, question in enumerate(responses):
            expected = decide(capped, question)
            numbers = list(dict.fromkeys(one.answer for one in question if one.answer is not None))
            answer = None if made.answers[at] < 0 else numbers[made.answers[at]]
            reason = None if made.reasons[at] == GOES_ON else REASONS[made.reasons[at]]
            assert (answer, made.samples[at], reason) == (expected.answer, expected.samples, expected.reason)
