"""Sampling ends early where responses are cut off, empty or broken, and no sooner than is reasonable."""

from typing import Any

import pytest

from langchain_reasc import ASC, ESC, Cap, ReASCRunnable
from langchain_reasc.exceptions import Undecided

from .fakes import Reply, Scripted, calibration, saying

CUT_OFF = Reply("so it", metadata={"finish_reason": "length"})
FILTERED = Reply("", metadata={"finish_reason": "content_filter"})
MALFORMED = Reply("", metadata={"finish_reason": "malformed_tool_use"})
EVERY = {
    "cut off": [CUT_OFF],
    "empty": [Reply("")],
    "no answer": [Reply("well")],
    "filtered": [FILTERED],
    "malformed": [MALFORMED],
    "mixed": [CUT_OFF, Reply(""), FILTERED, Reply("well")],
}


@pytest.mark.parametrize("replies", EVERY.values(), ids=EVERY)
@pytest.mark.parametrize("concurrency", [1, 4, 16])
@pytest.mark.parametrize("options", [{}, {"rule": ASC()}, {"rule": ESC()}, {"calibration": calibration()}], ids=str)
def test_four_responses_without_an_answer_are_enough(
    runner: Any, replies: list[Reply], concurrency: int, options: Any
) -> None:
    result = runner.solve(ReASCRunnable(model=saying(*replies), concurrency=concurrency, **options), "q")
    weighed = "calibration" in options  # any number of confident responses may decide then
    assert result.decision.samples == 4 and len(result.responses) == (max(4, concurrency) if weighed else 4)
    assert (result.answer, result.decision.reason, result.undecided) == (None, "unanswered", True)
    assert result.notices[-1].startswith("4 of 4 responses cast no vote")
    assert result.summary().startswith("no vote: none of 4 responses has an answer that can be compared")
    with pytest.raises(Undecided):
        runner.solve(ReASCRunnable(model=saying(*replies), on_undecided="raise", **options), "q")


def test_a_fixed_budget_is_spent_all_the_same(runner: Any) -> None:
    result = runner.solve(ReASCRunnable(model=saying(CUT_OFF), rule=Cap(10)), "q")
    assert (len(result.responses), result.decision.reason) == (10, "budget")


@pytest.mark.parametrize("concurrency", [1, 4, 16])
def test_one_answer_of_four_keeps_it_going(runner: Any, concurrency: int) -> None:
    model = Scripted(script=lambda question, index: Reply("the answer is 7") if index % 4 == 3 else CUT_OFF)
    result = runner.solve(ReASCRunnable(model=model, concurrency=concurrency), "q")
    assert (result.answer, result.decision.evidence) == ("7", {"7": 3.0})
    assert len(result.responses) == 12
