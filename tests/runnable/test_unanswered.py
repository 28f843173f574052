"""Sampling ends early where responses are cut off, empty or broken, and no sooner than is reasonable."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage

from langchain_reasc import ASC, ESC, Cap, ReASCRunnable
from langchain_reasc.answers import message_extractor
from langchain_reasc.exceptions import Undecided

from .fakes import Reply, Scripted, calibration, saying

CUT_OFF = Reply("so it", metadata={"finish_reason": "length"})
FILTERED = Reply("", metadata={"finish_reason": "content_filter"})
MALFORMED = Reply("", metadata={"finish_reason": "malformed_tool_use"})
EVERY = {
    "cut off": [CUT_OFF],
    "empty": [Reply("")],
    "no answer": [Reply("I cannot tell.")],
    "filtered": [FILTERED],
    "malformed": [MALFORMED],
    "mixed": [CUT_OFF, Reply(""), FILTERED, Reply("I cannot tell.")],
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
    assert result.notices[-1].startswith("4 of 4 responses")
    assert result.summary().startswith("no vote: ")
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


BLANK = Reply("I cannot tell.")
REFUSED = Reply("I cannot help with that", metadata={"finish_reason": "refusal"})
CALLS = Reply("let me see", calls=(("search", {}),))


def in_turn(replies: list[Any]) -> Scripted:
    """Answers with each reply once, and with the last one after that."""
    script = [reply if isinstance(reply, Reply) else Reply(f"the answer is {reply}") for reply in replies]
    return Scripted(script=lambda question, index: script[min(index, len(script) - 1)])


@pytest.mark.parametrize("concurrency", [1, 16])
@pytest.mark.parametrize(
    ("replies", "answer", "reason", "samples"),
    [
        ([BLANK, "7"], "7", "evidence", 7),
        ([CUT_OFF, "7"], "7", "evidence", 5),
        ([FILTERED, "7"], "7", "evidence", 5),
        ([REFUSED, "7"], "7", "evidence", 5),
        ([Reply(""), "7"], "7", "evidence", 5),
        (["7", BLANK], "7", "budget", 16),  # it is kept, as the answer of a few is often right
        ([CUT_OFF, "7", BLANK], "7", "budget", 16),
        ([BLANK, BLANK, BLANK, "7"], "7", "evidence", 12),
        ([BLANK, BLANK, BLANK, BLANK, "7"], None, "unanswered", 4),
        (["7", REFUSED], "7", "budget", 16),
        (["7", CUT_OFF], "7", "budget", 16),
    ],
    ids=str,
)
def test_complete_responses_without_an_answer_compete(
    runner: Any, replies: list[Any], answer: str | None, reason: str, samples: int, concurrency: int
) -> None:
    result = runner.solve(ReASCRunnable(model=in_turn(replies), rule=ASC(), concurrency=concurrency), "q")
    assert (result.answer, result.decision.reason, result.decision.samples) == (answer, reason, samples)


@pytest.mark.parametrize(("other", "samples"), [(CALLS, 5), (REFUSED, 5), (BLANK, 7)], ids=str)
def test_calls_and_refusals_do_not_compete_whatever_reads_them(runner: Any, other: Reply, samples: int) -> None:
    def found(message: AIMessage) -> str | None:
        return "7" if "7" in message.text else None

    model = in_turn([other, "7"])
    result = runner.solve(ReASCRunnable(model=model, answer=message_extractor(found), rule=ASC()), "q")
    assert (result.answer, result.decision.reason, result.decision.samples) == ("7", "evidence", samples)


def test_the_first_complete_one_is_returned_as_it_is_where_they_are_ahead(runner: Any) -> None:
    replies = [CUT_OFF, REFUSED, Reply(""), BLANK, Reply("I don't know.")]
    result = runner.solve(ReASCRunnable(model=in_turn(replies)), "q")
    account = result.message.response_metadata["reasc"]
    assert (result.message.text, account["answer"], account["evidence"]) == ("I cannot tell.", None, {})
    assert (account["reason"], result.undecided) == ("unanswered", True)
    assert "none of 4 responses" in result.summary()


@pytest.mark.parametrize("rule", [None, ASC(), ESC()], ids=str)
def test_an_answer_of_one_among_them_is_returned_and_undecided(runner: Any, rule: Any) -> None:
    result = runner.solve(ReASCRunnable(model=in_turn([BLANK, "7", BLANK]), rule=rule), "q")
    account = result.message.response_metadata["reasc"]
    assert (result.message.text, account["answer"], account["evidence"]) == ("the answer is 7", "7", {"7": 1.0})
    assert (account["reason"], account["samples"], result.undecided) == ("budget", 16, True)
    assert account["posterior"] < 0.01 and "1 of 16 responses" in result.summary()


def test_they_never_win_at_the_end_of_the_budget(runner: Any) -> None:
    result = runner.solve(ReASCRunnable(model=in_turn(["7", BLANK, BLANK]), max_samples=3), "q")
    assert (result.answer, result.decision.reason, result.message.text) == ("7", "budget", "the answer is 7")


@pytest.mark.parametrize(("replies", "reason"), [([BLANK], "unanswered"), (["7", BLANK], "budget")], ids=str)
def test_what_is_undecided_by_them_is_raised_abstained_or_escalated(
    runner: Any, replies: list[Any], reason: str
) -> None:
    with pytest.raises(Undecided) as caught:
        runner.solve(ReASCRunnable(model=in_turn(replies), on_undecided="raise"), "q")
    assert caught.value.result.decision.reason == reason
    abstained = runner.invoke(ReASCRunnable(model=in_turn(replies), on_undecided="abstain"), "q")
    assert (abstained.text, abstained.response_metadata["reasc"]["abstained"]) == ("", True)
    large = saying("9")
    pair = ReASCRunnable(model=in_turn(replies), escalate_to=large, rule=ASC())
    account = runner.invoke(pair, "q").response_metadata["reasc"]
    assert (account["answer"], account["answered_by"], account["reason"]) == ("9", "large", "escalated")
    assert account["models"]["small"]["reason"] == reason


@pytest.mark.parametrize("scored", [0.9, None])
def test_a_gate_accepts_none_of_them_and_they_need_no_confidence(runner: Any, scored: float | None) -> None:
    blank = Reply("I cannot tell.", logprob=None if scored is None else -scored)
    options: Any = {"calibration": calibration(gate=-9.0)}
    result = runner.solve(ReASCRunnable(model=in_turn([blank, "7"]), **options), "q")
    assert result.answer == "7" and result.decision.reason != "gate" and result.decision.samples > 1
