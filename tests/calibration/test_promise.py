"""What is promised, in words and numbers."""

import numpy as np
import pytest
from scipy.stats import beta

from langchain_reasc.calibration.observed import Observed
from langchain_reasc.calibration.promise import promise
from langchain_reasc.method.stopping import ASC, Cap


def counted(*answers: int | None, **fields: bool) -> Observed:
    return Observed(answers, np.zeros((0, len(answers))), **fields)


AGREED, SPLIT = counted(0, 0, 0, 0), counted(0, 1, 1, 0)
TURNED = counted(0, 1, 1, 1, 1, 1, 1)  # to which one response says otherwise than all


def test_questions_are_told_apart_by_whether_votes_were_sufficient() -> None:
    said = promise(Cap(1), [AGREED] * 29 + [TURNED] + [SPLIT] * 3, None)
    bound = beta.ppf(0.95, 2, 29)  # of Clopper and Pearson, for 1 of 30
    assert said == (
        "learned from 33 questions without labels; of 30 on which counted votes are sufficient 1 would be answered "
        f"otherwise, so at most {bound:.1%} of such questions are (95 %); of 3 on which votes are split to the end, "
        "0 would; agreement is not correctness"
    )


def test_what_counts_alike_never_differs() -> None:
    said = promise(ASC(), [AGREED, TURNED], None)
    assert "of 2 on which counted votes are sufficient 0 would" in said and "split" not in said
    assert f"at most {1 - 0.05 ** (1 / 2):.1%}" in said


def test_what_a_rule_like_it_cut_short_shows_nothing() -> None:
    cut = counted(0, 0, counted=False)
    said = promise(Cap(1), [cut, cut], None)
    assert said == "learned from 2 questions without labels; agreement is not correctness"
    assert "of 1 on which votes are split" in promise(Cap(1), [cut, SPLIT], None)


@pytest.mark.parametrize("answers", [(None, None), (None, 0, 0, 0, 0)])
def test_responses_without_an_answer(answers: tuple[int | None, ...]) -> None:
    assert "0 would" in promise(ASC(), [counted(*answers)] * 2, None)
