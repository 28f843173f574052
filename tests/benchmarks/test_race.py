"""What equal votes alone lose: exactly, over all orders of recorded responses."""

from itertools import permutations

import numpy as np
import pytest
from langchain_reasc_lab.pools import PoolQuestion, PoolResponse

from benchmarks.race import Asked, asked, compare
from langchain_reasc.method import Race, Response, decide


def question(*answers: str | None, right: str = "1", cut_off: int | None = None) -> PoolQuestion:
    responses = [
        PoolResponse(answer, 5, correct=answer == right, cut_off=at == cut_off) for at, answer in enumerate(answers)
    ]
    return PoolQuestion("q", (right,), tuple(responses))


@pytest.mark.parametrize(
    "one",
    [question("1", "1", "1"), question("1", "1", "1", "1", "2", "2", "2"), question("1", "1", None, "1", cut_off=0)],
    ids=["sure", "two answers", "cut off"],
)
def test_a_race_is_counted_over_all_orders(one: PoolQuestion) -> None:
    accepted, right = [], []
    for order in permutations(one.responses):
        given = [Response(response.answer, cut_off=response.cut_off) for response in order]
        decision = decide(Race(3), given)
        accepted.append(decision.reason == "unanimous")
        right.append(accepted[-1] and decision.answer == "1")
    told = asked(one)
    assert (told.accepted, told.right) == (pytest.approx(np.mean(accepted)), pytest.approx(np.mean(right)))


def test_what_a_pair_loses() -> None:
    small = {f"q{at}": Asked(1.0, 0.0, 0.0) if at < 10 else Asked(0.0, 0.0, 0.5) for at in range(100)}
    large = {f"q{at}": Asked(1.0, 1.0, 1.0) for at in range(100)}
    compared = compare(small, large)
    assert compared is not None
    gained, share = compared
    assert gained.value == pytest.approx(-10.0) and gained.high < 0 and share == pytest.approx(0.1)
    assert compare(large, small) is None, "the large model is not better"
    assert compare(small, dict([*large.items()][:20])) is None, "too few questions in common"
