"""A floor on the leader's share: an answer is decided once enough of the votes are for it."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_reasc.method import (
    ASC,
    Agreement,
    ByField,
    Cap,
    FiniteHorizon,
    Prior,
    ReASC,
    Response,
    Standardizer,
    StoppingRule,
    Supported,
    decide,
    share_of_answer,
)

from .by_hand import having, outcome, responses

HORIZON = FiniteHorizon() | Cap(16)
SCATTERED = "abcde-abcde-a-a"  # 4 votes of 15, and no other answer has more than 2


@pytest.mark.parametrize(
    ("rule", "answers", "without", "supported"),
    [
        (HORIZON, SCATTERED, (True, "a", "agreement", 15), (True, "a", "plurality", 10)),
        (HORIZON, "aaaa", (True, "a", "agreement", 4), (True, "a", "agreement", 4)),
        # Five of twelve can hardly be overtaken, and still become eight of fifteen.
        (HORIZON, "abcadaefaghaaaaa", (True, "a", "agreement", 12), (True, "a", "agreement", 15)),
        (Agreement(Prior.uniform()) | Cap(16), "abab" * 4, (True, "a", "budget", 16), (True, "a", "budget", 16)),
        (HORIZON, "-------aaaaaaa", (True, "a", "agreement", 10), (False, "a", None, 14)),
        (HORIZON, "--------aaaaaa", (True, "a", "agreement", 11), (True, "a", "plurality", 9)),  # half have no answer
        (HORIZON, "-" * 16, (True, None, "budget", 16), (True, None, "budget", 16)),
    ],
)
def test_by_hand(rule: StoppingRule, answers: str, without: tuple[object, ...], supported: tuple[object, ...]) -> None:
    assert outcome(decide(rule, responses(answers))) == without
    assert outcome(decide(Supported(rule), responses(answers))) == supported


def test_votes_count_as_the_rule_weighs_them() -> None:
    weighed = ReASC(Standardizer(0.0, 1.0)) | Cap(16)
    given = responses("ab", [0.0, 3.0])
    assert outcome(decide(Supported(weighed), given)) == (True, "b", "evidence", 2)
    assert outcome(decide(Supported(weighed, share=0.95), given)) == (False, "b", None, 2)


def test_each_field_and_each_kind_needs_its_share() -> None:
    mixed = [having(a="one", b=f"other {at}") for at in range(9)]
    by_field = decide(ByField(Supported(HORIZON)), mixed)
    assert by_field.parts["a"].reason == "agreement" and by_field.parts["b"].reason == "plurality"
    calls = [Response(f"pay {at % 3}", kind="pay") for at in range(12)]
    assert decide(Supported(HORIZON), calls).reason == "plurality"


@given(st.lists(st.sampled_from([*"aaabc", None]), min_size=1, max_size=16), st.sampled_from([0.0, 0.3, 0.5, 0.8]))
def test_what_is_decided_has_its_share_and_what_could_get_there_goes_on(answers: Sequence[str], share: float) -> None:
    given = [Response(answer) for answer in answers]
    decision = decide(Supported(FiniteHorizon(), share), given)
    has = share_of_answer(decision, answers[: decision.samples].count(None))
    if decision.stop and not decision.undecided:
        assert has is not None and has > share
    if decision.reason == "plurality":
        left = 16 - decision.samples
        assert decision.evidence[decision.answer or ""] + left <= share * 16


def test_without_a_floor_it_is_the_rule_itself() -> None:
    for answers in (SCATTERED, "aaaa", "ab" * 8, "--aab"):
        assert decide(Supported(HORIZON, share=0.0), responses(answers)) == decide(HORIZON, responses(answers))
        assert decide(Supported(ASC(), budget=99), responses(answers)) == decide(ASC(), responses(answers))
