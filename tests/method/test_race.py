"""Race and FirstConfident: which answers of a small model stand, and at which response a question is contested."""

import pytest

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method import Cap, FirstConfident, Race, Response, StoppingRule, decide, fewest_further

from .by_hand import outcome, responses

CUT = Response("a", cut_off=True)


@pytest.mark.parametrize(
    ("rule", "given", "expected"),
    [
        (Race(3), "", (False, None, None, 0)),
        (Race(3), "aa", (False, "a", None, 2)),
        (Race(3), "aaa", (True, "a", "unanimous", 3)),
        (Race(3), "aaab", (True, "a", "unanimous", 3)),
        (Race(3), "aba", (True, "a", "contested", 2)),
        (Race(3), "aab", (True, "a", "contested", 3)),
        (Race(3), "-aaa", (True, None, "contested", 1)),
        (Race(3), "a-aa", (True, "a", "contested", 2)),
        (Race(1), "ab", (True, "a", "unanimous", 1)),
        (Race(1), "-", (True, None, "contested", 1)),
        (Race(3, known="a"), "a", (True, "a", "unanimous", 1)),
        (Race(3, known="a"), "bbb", (True, "b", "unanimous", 3)),
        (Race(3, known="a"), "ba", (True, "b", "contested", 2)),
        (Race(2) & Cap(4), "abaa", (True, "a", "contested", 4)),
        (Race(2) | Cap(1), "a", (True, "a", "budget", 1)),
    ],
)
def test_a_race_ends_at_the_first_dissent_or_the_last_vote(rule: StoppingRule, given: str, expected: object) -> None:
    assert outcome(decide(rule, responses(given))) == expected


@pytest.mark.parametrize("rule", [Race(1), Race(2), Race(3, known="a"), FirstConfident(0.5)])
def test_a_response_that_was_cut_off_is_dissent(rule: StoppingRule) -> None:
    assert decide(rule, [CUT]).reason == "contested"
    assert decide(Race(2), [Response("a"), CUT]).reason == "contested"


def test_votes_of_two_kinds_are_contested() -> None:
    differ = [Response("search", kind="search"), Response("text")]
    assert decide(Race(2), differ).reason == "contested"
    assert decide(Race(2), [Response("search", kind="search")] * 2).reason == "unanimous"


@pytest.mark.parametrize(("given", "further"), [("", 2), ("a", 2), ("aa", 1)])
def test_no_more_responses_are_launched_than_a_race_may_need(given: str, further: int) -> None:
    rule = Race(3)
    assert fewest_further(rule, responses(given), rule.first_wave) == further


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (Response("a", 0.5), "gate"),
        (Response("a", 0.49), "contested"),
        (Response("a"), "contested"),
        (Response(None, 0.9), "contested"),
    ],
)
def test_a_confident_first_response_stands_alone(first: Response, reason: str) -> None:
    rule = FirstConfident(0.5)
    decision = decide(rule, [first, Response("b", 0.9)])
    assert (decision.reason, decision.samples) == (reason, 1)
    assert rule.first_wave == 1 and rule.reads_scores and not decide(rule, []).stop


def test_a_race_needs_a_vote() -> None:
    with pytest.raises(ConfigurationError, match=r"vote.* got 0"):
        Race(0)
