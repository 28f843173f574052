"""Deciding on many questions at once is deciding on each of them: hypothesis over rules, ties, gaps and lengths."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_reasc.evaluation.array_rules import GOES_ON, REASONS, after_each
from langchain_reasc.evaluation.decide_many import decide_many
from langchain_reasc.evaluation.vote_arrays import Votes, numbered
from langchain_reasc.exceptions import ConfigurationError, LogprobsUnavailable
from langchain_reasc.method.evidence import WEIGHTS, Standardizer
from langchain_reasc.method.fields import ByField
from langchain_reasc.method.stopping import ASC, ESC, Cap, Decision, FixedBudget, ReASC, Response, StoppingRule, decide

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


def _same(rule: StoppingRule, pool: Sequence[Sequence[Response]], one_by_one: Sequence[int] = ()) -> None:
    votes, special = Votes.of(pool), np.isin(np.arange(len(pool)), one_by_one)
    made = decide_many(rule, votes, pool.__getitem__, one_by_one=special)
    for at, responses in enumerate(pool):
        decision = decide(rule, responses)
        numbers = [one.answer for one in responses]
        answer = None if made.answers[at] < 0 else numbers[votes.answers[at].tolist().index(made.answers[at])]
        reason = None if made.reasons[at] == GOES_ON else REASONS[made.reasons[at]]
        assert (answer, made.samples[at], reason) == (decision.answer, decision.samples, decision.reason), rule


@settings(max_examples=400)
@given(rules, questions)
def test_every_rule_decides_as_it_does_one_by_one(rule: StoppingRule, pool: list[list[Response]]) -> None:
    assert not pool or not pool[0] or after_each(rule, Votes.of(pool)) is not None, "not on arrays"
    _same(rule, pool)


@settings(max_examples=100)
@given(rules, questions, st.lists(st.lists(special, max_size=8), max_size=3))
def test_questions_with_kinds_are_decided_one_by_one(
    rule: StoppingRule, pool: list[list[Response]], more: list[list[Response]]
) -> None:
    _same(rule, pool + more, range(len(pool), len(pool) + len(more)))
