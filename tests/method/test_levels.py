"""Votes on kinds first, and responses that are taken alone: by hand, and as properties of every rule."""

import random
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from langchain_reasc.exceptions import LogprobsUnavailable
from langchain_reasc.method import ASC, ESC, Cap, ReASC, Response, Standardizer, StoppingRule, decide
from method.test_properties import rules, scores

from .by_hand import check_that_a_stop_stands, outcome

UNIT = Standardizer(mean=0.0, std=1.0)
TEXT = Response("text")


def calls(answers: str, kind: str = "search") -> list[Response]:
    return [Response(answer, kind=kind) for answer in answers]


def test_calls_split_over_arguments_do_not_lose_to_fewer_texts() -> None:
    given = [TEXT, *calls("ab"), TEXT, *calls("c")]
    assert decide(Cap(5), [replace(one, kind=None) for one in given]).answer == "text"
    decision = decide(Cap(5), given)
    assert outcome(decision) == (True, "a", "budget", 5)
    assert decision.parts["kind"].evidence == {"answer": 2.0, "search": 3.0}
    assert decision.parts["answer"].evidence == {"a": 1.0, "b": 1.0, "c": 1.0}
    assert decision.evidence == {"text": 2.0, "a": 1.0, "b": 1.0, "c": 1.0}


def test_it_goes_on_until_the_arguments_are_clear_too() -> None:
    given = calls("ababa" + "a" * 8)
    assert decide(ASC(), given[:5]).parts["kind"].stop
    assert not decide(ASC(), given[:5]).stop
    decision = decide(ASC(), given)
    assert outcome(decision) == (True, "a", "evidence", 10)
    assert decision.posterior == decision.parts["answer"].posterior < decision.parts["kind"].posterior


def test_the_posterior_is_that_of_the_less_certain_level() -> None:
    decision = decide(ASC(), [*calls("aaa"), *[TEXT] * 2])
    assert decision.posterior == decision.parts["kind"].posterior < decision.parts["answer"].posterior
    assert decision.answer == "a"


def test_the_leading_kind_may_change() -> None:
    given = [TEXT, *calls("a"), *calls("bb", kind="book")]
    assert decide(ASC(), given[:2]).answer == "text"
    assert decide(ASC(), given).answer == "b"


def test_a_response_without_answer_votes_on_no_level() -> None:
    decision = decide(ASC(), [Response(None, kind="search"), *calls("aaaa")])
    assert outcome(decision) == (True, "a", "evidence", 5)
    assert decision.parts["kind"].evidence == {"search": 4.0}


def test_a_named_kind_answer_is_that_of_answers_without_one() -> None:
    decision = decide(Cap(3), [TEXT, Response("other", kind="answer"), *calls("a")])
    assert decision.parts["kind"].evidence == {"answer": 2.0, "search": 1.0}


def test_the_gate_accepts_a_first_call_but_no_later_one() -> None:
    rule = ReASC(UNIT, gate=1.0)
    first = Response("a", 1.5, kind="search")
    assert outcome(decide(rule, [first])) == (True, "a", "gate", 1)
    assert decide(rule, [first]).stage == 1
    later = decide(rule, [Response("text", -1.0), first])
    assert outcome(later) == (False, "a", None, 2)


def test_weights_count_on_both_levels() -> None:
    """Two texts weigh 1 each; one call, e^(0.7·2) = 4.06."""
    given = [Response("text", -1.0), Response("text", -1.0), Response("a", 2.0, kind="search")]
    assert decide(ReASC(UNIT), given).answer == "a"
    assert decide(ReASC(UNIT, weight="count"), given).answer == "text"


def test_windows_are_those_of_the_launch_order() -> None:
    given = [*calls("aa"), TEXT, *calls("baaaaa")]
    assert outcome(decide(ESC(3), given)) == (True, "a", "window", 9)  # aa?, baa, aaa


@pytest.mark.parametrize("rule", [ASC(), ReASC(UNIT, gate=0.0), ESC(2), Cap(3)], ids=str)
def test_a_first_response_alone_is_the_answer(rule: StoppingRule) -> None:
    decision = decide(rule, [Response("text", alone=True), *calls("aaaa")])
    assert outcome(decision) == (True, "text", "alone", 1)
    assert (decision.stage, decision.evidence) == (2, {})


def test_what_is_alone_needs_no_confidence_and_casts_no_vote_later() -> None:
    rule = ReASC(UNIT)
    alone = Response("text", alone=True)
    assert rule.weights([alone]) == [0.0]
    scored = [Response("a", 0.0), alone, alone, Response("b", 0.5)]
    assert decide(rule, scored).evidence.keys() == {"a", "b"}
    with pytest.raises(LogprobsUnavailable):
        decide(rule, [replace(alone, alone=False)])
    assert outcome(decide(Cap(1), [Response(None, alone=True)])) == (True, None, "alone", 1)


answers = st.sampled_from(["a", "b", "c", None])
kinds = st.sampled_from(["search", "book", "answer", None])
mixed = st.lists(st.builds(Response, answers, scores, st.booleans(), kinds), max_size=14)


@given(rules, mixed)
def test_the_answer_is_of_the_leading_kind(rule: StoppingRule, given: list[Response]) -> None:
    decision = decide(rule, given)
    assume(decision.parts)
    leading = decision.parts["kind"].answer
    of_it = {one.answer for one in given[: decision.samples] if one.answer and (one.kind or "answer") == leading}
    assert decision.answer in of_it or (leading is None and decision.answer is None)
    assert decision.stop == all(part.stop for part in decision.parts.values())
    assert decision.posterior == min(part.posterior for part in decision.parts.values())


@given(rules, mixed.filter(bool), mixed)
def test_later_responses_never_change_an_earlier_stop(
    rule: StoppingRule, given: list[Response], later: list[Response]
) -> None:
    check_that_a_stop_stands(rule, given, later)


@given(rules, mixed, st.permutations(["search", "book"]))
def test_kinds_are_only_names(rule: StoppingRule, given: list[Response], names: list[str]) -> None:
    renamed = {"search": names[0] + "!", "book": names[1] + "!", "answer": "answer", None: None}
    other = decide(rule, [replace(one, kind=renamed[one.kind]) for one in given])
    assert replace(other, parts={}) == replace(decide(rule, given), parts={})


@given(rules, st.integers(1, 14), st.sampled_from(["search", None]), st.randoms(use_true_random=False))
def test_unanimous_responses_stop_as_early_as_flat_ones(
    rule: StoppingRule, count: int, kind: str | None, chance: random.Random
) -> None:
    given = [Response("a", chance.uniform(-3, 3), kind=kind) for _ in range(count)]
    decision, flat = decide(rule, given), decide(rule, [replace(one, kind=None) for one in given])
    assert outcome(decision) == outcome(flat)
