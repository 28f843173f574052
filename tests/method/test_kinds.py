"""Votes on kinds first, and responses that are taken alone."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from langchain_reasc.exceptions import LogprobsUnavailable
from langchain_reasc.method import ASC, ESC, Agreement, Cap, Prior, ReASC, Response, Standardizer, StoppingRule, decide

from .by_hand import outcome, responses
from .test_rules import rule_and_scores

UNIT = Standardizer(mean=0.0, std=1.0)
TEXT = Response("text")


def calls(answers: str, kind: str = "search") -> list[Response]:
    return responses(answers, kind=kind)


@pytest.mark.parametrize(
    ("rule", "given", "expected", "kinds"),
    [
        # calls that are split over their arguments do not lose to fewer texts
        (Cap(5), [TEXT, *calls("ab"), TEXT, *calls("c")], (True, "a", "budget", 5), {"answer": 2.0, "search": 3.0}),
        (ASC(), calls("ababa"), (False, "a", None, 5), {"search": 5.0}),  # until the arguments are clear too
        (ASC(), calls("ababa" + "a" * 8), (True, "a", "evidence", 10), {"search": 10.0}),
        (ASC(), [TEXT, *calls("a")], (False, "text", None, 2), {"answer": 1.0, "search": 1.0}),
        (
            ASC(),
            [TEXT, *calls("a"), *calls("bb", "book")],
            (False, "b", None, 4),
            {"answer": 1, "search": 1, "book": 2},
        ),
        (ASC(), calls("-aaaa"), (True, "a", "evidence", 5), {"search": 4.0}),  # without an answer there is no vote
        (Cap(3), [TEXT, *calls("b", "answer"), *calls("a")], (True, "text", "budget", 3), {"answer": 2, "search": 1}),
        (ESC(3), [*calls("aa"), TEXT, *calls("baaaaa")], (True, "a", "window", 9), {"search": 8.0, "answer": 1.0}),
        (Agreement(Prior.uniform(), 0.8), calls("abcdef"), (False, "a", None, 6), {"search": 6.0}),
    ],
    ids=str,
)
def test_kinds_are_voted_on_first(
    rule: StoppingRule, given: list[Response], expected: tuple[object, ...], kinds: dict[str, float]
) -> None:
    decision = decide(rule, given)
    assert outcome(decision) == expected
    assert decision.parts["kind"].evidence == kinds
    assert decision.posterior == min(part.posterior for part in decision.parts.values())


def test_confidence_counts_on_both_levels() -> None:
    """Two texts weigh 1 each; one call, e^(0.7·2) = 4.06."""
    given = [Response("text", -1.0), Response("text", -1.0), Response("a", 2.0, kind="search")]
    assert decide(ReASC(UNIT), given).answer == "a"
    assert decide(ReASC(UNIT, weight="count"), given).answer == "text"
    gated, first = ReASC(UNIT, gate=1.0), Response("a", 1.5, kind="search")
    assert outcome(decide(gated, [first])) == (True, "a", "gate", 1) and decide(gated, [first]).stage == 1
    assert outcome(decide(gated, [Response("text", -1.0), first])) == (False, "a", None, 2)


@pytest.mark.parametrize("rule", [ReASC(UNIT, gate=0.0), ESC(2), Cap(3)], ids=str)
def test_a_first_response_alone_is_the_answer(rule: StoppingRule) -> None:
    decision = decide(rule, [Response("text", not_voted=True), *calls("aaaa")])
    assert outcome(decision) == (True, "text", "alone", 1)
    assert (decision.stage, decision.evidence) == (2, {})


def test_what_is_alone_needs_no_confidence_and_casts_no_vote_later() -> None:
    rule, alone = ReASC(UNIT), Response("text", not_voted=True)
    assert rule.weights([alone]) == [0.0]
    assert decide(rule, [Response("a", 0.0), alone, alone, Response("b", 0.5)]).evidence.keys() == {"a", "b"}
    with pytest.raises(LogprobsUnavailable):
        decide(rule, [replace(alone, not_voted=False)])


rules, scores = rule_and_scores()
names = st.sampled_from(["search", "book", "answer", None])
mixed = st.lists(st.builds(Response, st.sampled_from(["a", "b", "c", None]), scores, st.booleans(), names), max_size=14)


@given(rules, mixed)
def test_the_answer_is_of_the_leading_kind(rule: StoppingRule, given: list[Response]) -> None:
    decision = decide(rule, given)
    assume(decision.parts)
    leading = decision.parts["kind"].answer
    of_it = {one.answer for one in given[: decision.samples] if one.answer and (one.kind or "answer") == leading}
    assert decision.answer in of_it or (leading is None and decision.answer is None)
    assert decision.stop == all(part.stop for part in decision.parts.values())
