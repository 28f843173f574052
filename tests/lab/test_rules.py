"""Weighted votes of other papers, by hand."""

import math
from functools import partial

import pytest
from langchain_reasc_lab.rules import CISC, DeepConfFilter
from method import by_hand

from langchain_reasc.exceptions import ConfigurationError, LogprobsUnavailable
from langchain_reasc.method import Cap, Response, StoppingRule, decide

responses = partial(by_hand.responses, score=1.0)


def test_cisc_by_hand() -> None:
    """Weights e^0, e^0 and e^1 of the scores 1, 1 and 2, over their sum."""
    decision = CISC()(responses("aab", [1.0, 1.0, 2.0]))
    assert decision.answer == "b"
    assert decision.evidence == {"a": pytest.approx(2 / (2 + math.e)), "b": pytest.approx(math.e / (2 + math.e))}
    assert decision.posterior == pytest.approx(math.e / (2 + math.e))
    assert CISC(temperature=100.0)(responses("aab", [1.0, 1.0, 2.0])).answer == "a"
    assert CISC(temperature=1e-9)(responses("aab", [-1e9, 0.0, 1e9])).answer == "b"


def test_deepconf_by_hand() -> None:
    """Of 1, 2, 3, 4 and 5 the median is 3; of the three kept, 5 outweighs 4, and 3 + 4 outweigh 5."""
    given = responses("aabcd", [1.0, 2.0, 3.0, 4.0, 5.0])
    assert DeepConfFilter(keep=0.5).weights(given) == [0.0, 0.0, 3.0, 4.0, 5.0]
    assert DeepConfFilter(keep=0.5)(given).answer == "d"
    assert DeepConfFilter(keep=0.5)(responses("aabbd", [1.0, 2.0, 3.0, 4.0, 5.0])).answer == "b"
    assert DeepConfFilter(keep=1.0).weights(given) == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert DeepConfFilter(keep=0.1).weights(given) == [0.0, 0.0, 0.0, 0.0, 5.0]
    assert DeepConfFilter(keep=0.1).weights(responses("a-b", [2.0, 9.0, 1.0])) == [2.0, 0.0, 0.0]


@pytest.mark.parametrize("rule", [CISC(), DeepConfFilter()], ids=lambda rule: rule.name)
class TestWeighedTogether:
    """What all rules have in common that weigh all responses so far."""

    def test_it_never_stops_by_itself(self, rule: StoppingRule) -> None:
        given = responses("a" * 12)
        assert not decide(rule, given).stop
        decision = decide(rule | Cap(4), given)
        assert (decision.stop, decision.answer, decision.reason, decision.samples) == (True, "a", "budget", 4)
        assert decision.posterior == pytest.approx(1.0)
        assert rule.reads_scores and rule.first_wave is None

    def test_few_responses(self, rule: StoppingRule) -> None:
        for answers, expected in (("", None), ("--", None), ("a", "a"), ("-a", "a"), ("ab", "a")):
            decision = rule(responses(answers))
            assert (decision.answer, decision.samples) == (expected, len(answers))
        assert rule(responses("--")).posterior == 0.0
        assert rule(responses("ab", [1.0, 2.0])).answer == "b"

    def test_a_missing_score_is_an_error_or_the_mean(self, rule: StoppingRule) -> None:
        given = responses("aab", [1.0, 3.0, None])
        with pytest.raises(LogprobsUnavailable, match="on_missing_confidence='count'"):
            rule(given)
        counting = type(rule)(on_missing_confidence="count")  # type: ignore[call-arg]
        assert counting(given).evidence == counting(responses("aab", [1.0, 3.0, 2.0])).evidence
        assert counting(responses("abb", [None] * 3)).answer == "b"

    def test_what_is_alone_has_no_vote(self, rule: StoppingRule) -> None:
        assert rule.weights([Response("a", not_voted=True), Response("b", 1.0)])[0] == 0.0
        later = decide(rule | Cap(2), [Response("b", 1.0), Response("a", not_voted=True)])
        assert later.evidence.keys() == {"b"}


def test_a_negative_score_is_no_weight() -> None:
    with pytest.raises(ConfigurationError, match="deepconf_filter weighs by the score, and one is -1"):
        DeepConfFilter()(responses("ab", [-1.0, 2.0]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CISC(temperature=0.0), "temperature is a finite number above 0, got 0.0"),
        (lambda: DeepConfFilter(keep=0.0), "keep is a share above 0 and at most 1, got 0.0"),
        (lambda: CISC(on_missing_confidence="skip"), "'error' or 'count', got 'skip'"),
    ],
)
def test_refused(make: object, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()  # type: ignore[operator]
