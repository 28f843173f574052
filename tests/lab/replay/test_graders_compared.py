"""How accurate responses are by two gradings, and how far these agree."""

from typing import Any

import pytest
from hypothesis import strategies as st
from langchain_reasc_lab.replay import Agreement, accuracies, agreement

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


def test_responses_without_an_answer_do_not_make_graders_agree() -> None:
    first, second, there = graded([[(True, False), (False, False)], [(False, False)]])
    found = _agreement(first, second, {"q0": [True, False], "q1": [False]})
    assert (found.both, found.first_only, found.second_only, found.neither) == (0, 1, 0, 0)
    assert agreement(first, second, {name: [False] * len(row) for name, row in there.items()}) is None
