"""Complete responses without an answer are one more candidate, which an answer must beat and which never wins."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langchain_reasc.exceptions import LogprobsUnavailable
from langchain_reasc.method import (
    ASC,
    ESC,
    Agreement,
    ByField,
    CannotCatchUp,
    Cap,
    FiniteHorizon,
    FirstConfident,
    Lead,
    NeverAgrees,
    Prior,
    Race,
    ReASC,
    Response,
    Standardizer,
    StoppingRule,
    Unanswered,
    decide,
    fewest_further,
    rule_in_use,
)

from .by_hand import SCORES, having

BLANK, NO_VOTE = Response(None, blank=True), Response(None)
UNIT = Standardizer(mean=0.0, std=1.0)
HORIZON = FiniteHorizon(0.9, 16)
SCORED = Agreement(Prior.uniform(), 0.9, scores=SCORES)


def responses(letters: str, score: float | None = None, kind: str | None = None) -> list[Response]:
    """One letter for each response: ``.`` is blank, ``-`` has no vote (cut off, refused), another one is the answer."""
    others = {".": replace(BLANK, score=score), "-": NO_VOTE}
    return [others.get(letter) or Response(letter, score, kind=kind) for letter in letters]


def outcome(rule: StoppingRule, given: Sequence[Response], budget: int = 16) -> tuple[str | None, str | None, int]:
    decision = decide(rule_in_use(rule, budget), given)
    assert decision.undecided == (decision.reason in ("budget", "unanswered", "contested"))
    return decision.answer, decision.reason, decision.samples


@pytest.mark.parametrize(
    ("letters", "asc", "horizon"),
    [
        ("aaaa", ("a", "evidence", 4), ("a", "agreement", 3)),
        (".aaaaaaaaa", ("a", "evidence", 7), ("a", "agreement", 5)),  # as after one vote for another answer
        ("-aaaa", ("a", "evidence", 5), ("a", "agreement", 3)),
        ("....", (None, "unanswered", 4), (None, "unanswered", 4)),
        ("...", (None, None, 3), (None, None, 3)),  # three equal votes are enough for the horizon, but not here
        (".a......", ("a", None, 8), ("a", None, 8)),  # far ahead, but one response has an answer
        (".a..............", ("a", "budget", 16), ("a", "budget", 16)),
        (".a..aaaaaaaaaaaa", ("a", "evidence", 12), ("a", "agreement", 9)),  # it catches up
        ("-....", (None, "unanswered", 4), (None, "unanswered", 4)),
        ("....aaaaaaaaaaaa", (None, "unanswered", 4), (None, "unanswered", 4)),
        ("-..a....", ("a", None, 8), ("a", None, 8)),
        ("a.a.a.a.a.a.a.a.", ("a", "budget", 16), ("a", "budget", 16)),
        ("a.a..a..a.b.a.a.", ("a", "budget", 16), ("a", "budget", 16)),  # behind them at the end of the budget
        ("ab.c.d.e.f.g.h.i", ("a", "budget", 16), ("a", "budget", 16)),  # ahead of each
        ("a..a", ("a", None, 4), ("a", None, 4)),  # as many as for the leader end nothing
    ],
)
def test_an_answer_must_beat_the_blank_responses(letters: str, asc: Any, horizon: Any) -> None:
    assert outcome(ASC(), responses(letters)) == asc
    assert outcome(HORIZON, responses(letters)) == horizon


@pytest.mark.parametrize(
    ("rule", "letters", "expected"),
    [
        (Agreement(Prior.uniform(), 0.9), "......", (None, "unanswered", 4)),
        (CannotCatchUp(8), "a.......", ("a", None, 8)),
        (CannotCatchUp(8), "a.aaaaaa", ("a", "agreement", 5)),
        (ESC(4), "....", (None, "unanswered", 4)),
        (ESC(4), "aaa.aaaa", ("a", "window", 8)),
        (ESC(3), "...a", ("a", None, 4)),
        (ESC(3), "...aaaaaa", ("a", "window", 6)),
        (Lead(2), "....", (None, "unanswered", 4)),
        (Lead(2), ".aaa", ("a", "evidence", 4)),
        (Lead(2), "-aa", ("a", "evidence", 3)),
        (Race(3), ".aaa", (None, "contested", 1)),
        (Race(3), "...", (None, "contested", 1)),
        (Race(3), "a.aa", ("a", "contested", 2)),
        (FirstConfident(0.5), ".", (None, "contested", 1)),
        (ReASC(UNIT, gate=0.5), "....", (None, "unanswered", 4)),
        (ReASC(UNIT, gate=0.5), "." + "a" * 15, ("a", "evidence", 3)),
        (ReASC(UNIT, gate=0.5), "aaaa", ("a", "gate", 1)),
        (SCORED, "....", (None, "unanswered", 4)),
        (SCORED, "aaaa", ("a", "agreement", 1)),
        (Cap(16), "." * 16, (None, "budget", 16)),
        (Cap(16), "." * 15 + "a", ("a", "budget", 16)),
    ],
    ids=str,
)
def test_no_rule_accepts_them(rule: StoppingRule, letters: str, expected: Any) -> None:
    assert outcome(rule, responses(letters, score=2.0 if rule.reads_scores else None)) == expected


def test_a_blank_response_is_one_vote_and_needs_no_score() -> None:
    scored, unscored = responses("a..", score=2.0), [*responses("a", score=2.0), BLANK, BLANK]
    for rule in (ReASC(UNIT), Agreement(Prior.uniform(), 0.99, scores=SCORES)):
        assert decide(rule_in_use(rule, 16), scored) == decide(rule_in_use(rule, 16), unscored)
    with pytest.raises(LogprobsUnavailable):
        decide(rule_in_use(ReASC(UNIT), 16), responses("a"))
    weighed = decide(rule_in_use(ReASC(UNIT), 16), scored)
    counted = decide(rule_in_use(ReASC(UNIT, weight="count"), 16), scored)
    assert weighed.answer == counted.answer == "a"
    assert weighed.posterior > 0.5 > counted.posterior  # e^1.4 votes against two, and one against two


def test_the_evidence_is_that_of_answers_and_the_posterior_counts_all() -> None:
    behind = decide(rule_in_use(ASC(), 16), responses("a..b."))
    ahead = decide(rule_in_use(ASC(), 16), responses("a.aa"))
    assert (behind.evidence, ahead.evidence) == ({"a": 1.0, "b": 1.0}, {"a": 3.0})
    assert behind.posterior == pytest.approx(1 - decide(ASC(), responses("bccca")).posterior)
    assert ahead.posterior == decide(ASC(), responses("abaa")).posterior
    one_answer = decide(rule_in_use(ASC(), 16), responses(".a......"))
    assert (one_answer.evidence, one_answer.answer) == ({"a": 1.0}, "a")
    assert one_answer.posterior == pytest.approx(1 - decide(ASC(), responses("b" * 7 + "a"), undecided=7).posterior)
    ended = decide(rule_in_use(ASC(), 16), responses("...."))
    assert (ended.evidence, ended.answer, ended.whole, ended.parts) == ({}, None, None, {})


def test_calls_are_voted_on_against_them_by_kind() -> None:
    mixed = [*responses("abcdeabcde", kind="search"), *responses("....")]
    decision = decide(rule_in_use(ASC(), 14), mixed)
    assert (decision.parts["kind"].evidence, decision.reason) == ({"search": 10.0}, "budget")
    called = [*responses("..a", kind="search"), *responses("a" * 7, kind="search")]
    assert outcome(ASC(), called[:9]) == ("a", None, 9)
    assert outcome(ASC(), called) == ("a", "evidence", 10)
    behind = [*responses("ab", kind="search"), *responses("." * 14)]
    assert outcome(ASC(), behind[:11]) == ("a", None, 11)
    assert outcome(ASC(), behind) == ("a", "budget", 16)
    arguments = decide(rule_in_use(ASC(), 16), called).parts["answer"]  # compete with each other alone
    assert arguments.posterior == decide(ASC(0.999), responses("a" * 8)).posterior


def test_objects_are_voted_on_against_them_as_a_whole() -> None:
    objects = [having(city="Rome", note=note) for note in "abcdefghij"]
    rule = rule_in_use(ASC(), 16, over_parts=ByField)
    behind = decide(rule, [*objects[:2], *[BLANK] * 8])
    assert (behind.answer, behind.stop, behind.samples) == (objects[0].answer, False, 10)
    assert behind.evidence == {objects[0].answer: 1.0, objects[1].answer: 1.0}
    decision = decide(rule, [BLANK, BLANK, *objects])
    assert not decision.stop and decision.parts["city"].evidence == {'"Rome"': 10.0}
    same = [having(city="Rome", days=1)] * 8
    assert decide(rule, same[:4]).reason == "evidence"
    assert decide(rule, [BLANK, *same[:4]]).reason is None
    assert decide(rule, [BLANK, *same]).samples == 7
    at_the_end = decide(rule_in_use(ASC(), 5, over_parts=ByField), [BLANK, BLANK, BLANK, *same[:2]])
    assert (at_the_end.answer, at_the_end.reason) == (same[0].answer, "budget")


def test_what_never_agrees_must_beat_them_in_the_rest() -> None:
    mails = [Response(json.dumps({"to": "ann", "body": " ".join(f"{at}x{n}" for n in range(30))})) for at in range(10)]
    rule = Unanswered(NeverAgrees(FiniteHorizon() | Cap(16), json.loads, 16))
    after = [decide(rule, [*[BLANK] * blanks, *mails]) for blanks in (0, 1, 2)]
    assert [(one.answer, one.reason) for one in after] == [(mails[0].answer, "hopeless")] * 3
    votes = [one.samples - blanks for blanks, one in enumerate(after)]
    assert votes == sorted(votes) and votes[2] > votes[0]


@pytest.mark.parametrize(("letters", "further"), [("...", 1), ("a....", 10), ("a.........", 6), ("a", 3), ("-..", 1)])
def test_no_more_samples_are_launched_than_could_end_it(letters: str, further: int) -> None:
    rule = rule_in_use(ASC(), 16)
    assert fewest_further(rule, responses(letters), 16) == further


@example("a" + "." * 15)
@example("..-aaaaa")
@given(st.text("ab.-", max_size=16))
def test_blank_responses_decide_as_another_answer_would(letters: str) -> None:
    for rule in (ASC(), HORIZON, ESC(4)):
        decision = decide(rule_in_use(rule, 16), responses(letters))
        other = decide(rule | Cap(16), responses(letters.replace(".", "z")))
        assert decision.evidence.keys() <= {"a", "b"}
        if other.answer != "z" and other.stop and decision.samples == other.samples:
            assert (decision.answer, decision.reason) == (other.answer, other.reason)
        # Where "no answer" would win, sampling goes on, and an answer may win later.
        if other.answer != "z" and decision.reason not in (None, "budget", "unanswered"):
            assert decision.samples == other.samples and decision.posterior == other.posterior
        assert (decision.answer is None) == (not decision.evidence)
        assert decision.stop or len(letters) < 16
        if decision.reason == "unanswered":
            assert not decision.evidence and decision.samples == 4
