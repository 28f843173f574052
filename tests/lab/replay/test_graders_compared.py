"""How accurate responses are by two gradings, and how far these agree."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_reasc_lab.replay import Agreement, accuracies, agreement
from sklearn.metrics import cohen_kappa_score

Rows = list[list[tuple[bool, bool | None]]]
ROWS = st.lists(
    st.lists(st.tuples(st.booleans(), st.sampled_from([True, False, None])), min_size=1, max_size=5), min_size=1
)


def graded(rows: Rows) -> tuple[dict[str, list[bool | None]], dict[str, list[bool | None]], dict[str, list[bool]]]:
    first = {f"q{at}": [one for one, _ in row] for at, row in enumerate(rows)}
    second = {f"q{at}": [other for _, other in row] for at, row in enumerate(rows)}
    return first, second, {name: [True] * len(row) for name, row in second.items()}  # type: ignore[return-value]


def _agreement(*graded: Any) -> Agreement:
    found = agreement(*graded)
    assert found is not None
    return found


def test_by_hand() -> None:
    first, second, there = graded([[(True, True), (True, False)], [(False, None), (False, True)], [(True, True)] * 6])
    before, after, difference = accuracies(first, second)
    assert (before.value, after.value, difference.value) == pytest.approx((0.8, 0.8, 0.0))
    found = _agreement(first, second, there)
    assert (found.both, found.first_only, found.second_only, found.neither) == (7, 1, 1, 1)
    assert found.share.value == pytest.approx(0.8)
    assert found.kappa is not None and found.kappa.value == pytest.approx((0.8 - 0.68) / 0.32)


@given(ROWS)
def test_kappa_is_that_of_scikit_learn(rows: Rows) -> None:
    first, second, there = graded(rows)
    found = _agreement(first, second, there)
    flat = [(one, other is True) for row in rows for one, other in row]
    ones, others = [one for one, _ in flat], [other for _, other in flat]
    assert found.share.value == pytest.approx(np.mean(np.equal(ones, others)))
    if len(set(ones)) == 1 or len(set(others)) == 1:
        assert found.kappa is None
    else:
        assert found.kappa is not None and found.kappa.value == pytest.approx(cohen_kappa_score(ones, others))


def test_where_nothing_changed_the_interval_is_not_empty() -> None:
    first, second, there = graded([[(True, True), (False, False)]] * 20)
    difference = accuracies(first, second)[2]
    assert difference.value == 0 and -0.2 < difference.low < -0.1 and 0.1 < difference.high < 0.2
    found = _agreement(first, second, there)
    assert found.share.high == 1 and found.share.low < 0.9
    assert found.kappa is not None and found.kappa.value == 1 and found.kappa.low < 0.8


def test_responses_without_an_answer_do_not_make_graders_agree() -> None:
    first, second, there = graded([[(True, False), (False, False)], [(False, False)]])
    found = _agreement(first, second, {"q0": [True, False], "q1": [False]})
    assert (found.both, found.first_only, found.second_only, found.neither) == (0, 1, 0, 0)
    assert agreement(first, second, {name: [False] * len(row) for name, row in there.items()}) is None
