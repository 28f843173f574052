"""Parts of answers that can never agree: when that is noticed, what is given then, and how often it is fooled."""

import json
from typing import Any

import numpy as np
import pytest

from benchmarks.hopeless_calls import cost, samples
from langchain_reasc import ASC, ESC, Cap, FiniteHorizon, Response, decide
from langchain_reasc.method import NeverAgrees, Unanswered, chance_of_agreement, fewest_further

RULE = FiniteHorizon() | Cap(16)
DRAFT = (
    "Dear Ann, thank you for writing; {0} we are looking into it {0} and shall answer {0} by the end of the week {0}."
)


def draft(number: int) -> str:
    return " ".join(f"{word}{number}" for word in DRAFT.split())


def mails(*calls: tuple[str, str]) -> list[Response]:
    return [Response(json.dumps({"to": to, "body": body})) for to, body in calls]


def decided(*calls: tuple[str, str], rule: Any = RULE) -> Any:
    return decide(NeverAgrees(rule, json.loads, 16), mails(*calls))


@pytest.mark.parametrize("rule", [RULE, ASC() | Cap(16), ESC() | Cap(16)], ids=str)
def test_it_stops_once_the_rest_is_decided(rule: Any) -> None:
    decision = decided(*(("ann", draft(at)) for at in range(16)), rule=rule)
    assert (decision.stop, decision.reason, decision.never_agrees) == (True, "hopeless", ("body",))
    assert decision.samples <= 8 and len(decision.evidence) == decision.samples


def test_the_best_call_is_one_whose_rest_is_that_of_most() -> None:
    decision = decided(*(("bob" if at in (0, 3) else "ann", draft(at)) for at in range(16)))
    assert (decision.reason, json.loads(decision.answer)) == ("hopeless", {"to": "ann", "body": draft(1)})
    assert decision.samples > decided(*(("ann", draft(at)) for at in range(16))).samples  # the rest took longer


@pytest.mark.parametrize(
    "calls",
    [
        [("ann", draft(at % 3)) for at in range(16)],
        [("ann", "yes") for _ in range(16)],
        [("ann", f"{at % 2}") for at in range(16)],
        [(f"{at % 2}", draft(at)) for at in range(16)],  # to whom is undecided to the end
    ],
    ids=["three drafts", "one answer", "two answers", "an open rest"],
)
def test_where_something_may_agree_yet_it_decides_as_without(calls: list[tuple[str, str]]) -> None:
    decision = decided(*calls)
    assert decision == decide(RULE, mails(*calls)) and decision.never_agrees == ()


def test_answers_without_parts_are_none_of_its_business() -> None:
    ordinary = [Response(str(at)) for at in range(16)]
    rule = NeverAgrees(RULE, lambda answer: None, 16)
    assert [decide(rule, ordinary[:n]) for n in range(17)] == [decide(RULE, ordinary[:n]) for n in range(17)]
    mixed = [*mails(*(("ann", draft(at)) for at in range(15))), Response("no call")]
    parts = {one.answer: json.loads(one.answer) for one in mixed[:15]}
    assert decide(NeverAgrees(RULE, parts.get, 16), [mixed[15], *mixed[:15]]).reason == "budget"


def test_the_chance_of_agreement() -> None:
    words = [chance_of_agreement([str(at) for at in range(n)], 16 - n) for n in range(2, 16)]
    texts = [chance_of_agreement([draft(at) for at in range(n)], 16 - n) for n in range(2, 16)]
    assert words == sorted(words, reverse=True) and texts == sorted(texts, reverse=True)
    assert all(text <= word for text, word in zip(texts, words, strict=True))
    assert chance_of_agreement(["a"] * 5, 11) == 1.0 and chance_of_agreement(["a", "b"], 0) == 1.0
    assert chance_of_agreement(["a", "b", "c", "b"], 12) == 1.0
    near = [draft(1), draft(1).replace("Ann", "Eve")]
    assert chance_of_agreement(near, 14) == pytest.approx(chance_of_agreement(["Ann", "Eve"], 14))


@pytest.mark.parametrize(("share", "others"), [(0.3, 16), (0.3, 2), (0.5, 16), (0.9, 4)])
def test_where_words_agree_it_is_hardly_ever_fooled(share: float, others: int) -> None:
    """The null: with three in ten at worst, 16 others beside; see ``python -m benchmarks.hopeless_calls``."""
    found, hardest = cost(share, others, words=1, questions=100), (share, others) == (0.3, 16)
    assert found.stopped <= (0.05 if hardest else 0.01)
    assert found.without - found.right <= (0.02 if hardest else 0.0)


@pytest.mark.parametrize(("words", "most"), [(1, 9), (10, 8), (40, 5), (400, 5)])
def test_how_many_responses_it_takes_where_all_differ(words: int, most: int) -> None:
    assert 4 <= samples(words, questions=5) <= most


A, B, NONE = (Response(None, instead=said) for said in ("a", "b", None))
EMPTY, YES = Response(None, instead=""), Response("yes")


@pytest.mark.parametrize(
    ("responses", "expected"),
    [
        ([A] * 3, ("unanswered", None, 3)),
        ([A, B, A], (None, None, 3)),
        ([A, A, NONE, EMPTY], ("unanswered", None, 4)),
        ([EMPTY] * 4, ("unanswered", None, 4)),
        ([A, A, YES, A, *[NONE] * 6], (None, "yes", 10)),
        ([A, A, YES, YES, YES, YES], ("agreement", "yes", 6)),
        ([EMPTY, EMPTY, Response(None, not_voted=True)], ("alone", None, 3)),
        ([A, Response(None, not_voted=True), A, A], ("unanswered", None, 4)),
    ],
    ids=str,
)
def test_sampling_ends_where_no_response_has_an_answer(responses: list[Response], expected: Any) -> None:
    rule = Unanswered(RULE)
    decision = decide(rule, responses)
    assert (decision.reason, decision.answer, decision.samples) == expected
    assert decision.undecided == (decision.reason == "unanswered")
    assert not any(decide(rule, responses[:n]).stop for n in range(decision.samples))


@pytest.mark.parametrize(("p", "bound"), [(0.3, 0.24), (0.5, 0.062), (0.8, 0.002)])
def test_a_model_that_answers_now_and_then_is_seldom_stopped(p: float, bound: float) -> None:
    drawn = np.random.default_rng(1).random((4000, 4)) < p
    stopped = [decide(Unanswered(RULE), [YES if one else NONE for one in row]).reason for row in drawn.tolist()]
    assert abs(stopped.count("unanswered") / 4000 - bound) < 0.02


@pytest.mark.parametrize(
    ("responses", "further"), [([], 4), ([A], 2), ([A, A], 1), ([NONE], 3), ([NONE] * 2, 2), ([EMPTY] * 3, 1)], ids=str
)
def test_no_more_samples_are_launched_than_could_end_it(responses: list[Response], further: int) -> None:
    assert fewest_further(Unanswered(ASC()), responses, 8) == further
