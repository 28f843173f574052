"""Which question is sampled next: the gain by hand, and what it prefers."""

import pytest
from scipy.stats import betabinom

from langchain_reasc.method import ASC, Decision, ReASC, Response, Standardizer, decide, expected_gain, most_gain_first


def after(*answers: str | None) -> Decision:
    return decide(ASC(0.999), [Response(answer) for answer in answers])


def test_the_gain_by_hand() -> None:
    # 1 against 1: the share of each is 1/2; one more vote makes one of them 3/5.
    assert expected_gain(after("1", "2"), 1) == pytest.approx(3 / 5 - 1 / 2)
    # 1 against 0: the share is 2/3. One vote cannot change the leader, so nothing is gained; of two, both go to
    # another answer with probability B(2, 3) / B(2, 1) = 1/6, which then has 3/5 and not the expected 2/5.
    assert expected_gain(after("1"), 1) == 0.0
    assert expected_gain(after("1"), 2) == pytest.approx(1 / 6 * (3 / 5 - 2 / 5) / 2)


@pytest.mark.parametrize(("first", "second", "horizon"), [(1, 0, 5), (3, 1, 13), (2, 2, 12), (0, 0, 16)])
def test_the_gain_equals_its_definition(first: int, second: int, horizon: int) -> None:
    a, b = first + 1, second + 1
    gains = []
    for r in range(1, horizon + 1):
        likely = [betabinom.pmf(x, r, a, b) for x in range(r + 1)]
        share = sum(p * max(a + x, b + r - x) for x, p in enumerate(likely)) / (a + b + r)
        gains.append((share - a / (a + b)) / r)
    decision = after(*["1"] * first, *["2"] * second)
    assert expected_gain(decision, horizon) == pytest.approx(max(gains))


def test_what_the_rest_of_the_budget_cannot_change_gains_nothing() -> None:
    assert expected_gain(after(*"1111112"), 4) == 0.0
    assert expected_gain(after(*"12"), 0) == 0.0
    assert expected_gain(after(*"12"), -1) == 0.0


def test_close_votes_gain_most_and_scattered_ones_less() -> None:
    close, clear = after(*"12"), after(*"111")
    scattered, silent = after(*"123456"), after("1", "2", None, None, None, None)
    assert expected_gain(close, 14) > expected_gain(clear, 13) > 0
    assert expected_gain(close, 10) > expected_gain(scattered, 10)
    assert expected_gain(silent, 10) == expected_gain(scattered, 10)


def test_questions_without_any_answer_are_left_in_the_end() -> None:
    gains = [expected_gain(after(*[None] * n), 8) for n in (0, 1, 4, 8)]
    assert gains == sorted(gains, reverse=True) and gains[-1] > 0
    assert gains[-1] < expected_gain(after(*"12"), 8) / 10


def test_weighted_evidence_counts_as_evidence() -> None:
    rule = ReASC(Standardizer(0.0, 1.0))
    weighed = decide(rule, [Response("1", 1.0), Response("2", 0.0)])
    assert 0 < expected_gain(weighed, 8) < expected_gain(after(*"12"), 8)


def test_of_a_decision_in_parts_the_least_certain_one_counts() -> None:
    whole = decide(ASC(0.99), [Response(answer, kind="search") for answer in "abb"])
    assert expected_gain(whole, 8) == expected_gain(whole.parts["answer"], 8) > 0


def test_the_most_gain_for_the_cost_comes_first() -> None:
    decisions = [after(*"111"), after(*"12"), after(*"12"), after(*"1122")]
    assert most_gain_first(decisions, [13, 14, 14, 12], [1, 1, 1, 1])[:2] == [1, 2]
    assert most_gain_first(decisions, [13, 14, 14, 12], [1, 100, 1, 1])[0] == 2
    assert most_gain_first(decisions, [13, 0, 14, 0], [1, 1, 1, 1]) == [2, 0]
    assert most_gain_first([], [], []) == []
    with pytest.raises(ValueError):
        most_gain_first(decisions, [1], [1])
