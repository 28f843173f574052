"""One budget for all inputs of a batch: what it is spent on, that it holds, and what is left undecided."""

import threading
from collections import Counter
from contextlib import nullcontext
from typing import Any

import pytest

from langchain_reasc import Cap, ReASCRunnable
from langchain_reasc.exceptions import ConfigurationError, SamplingError

from .fakes import PROMPT_TOKENS, Reply, Scripted, calibration, failing

pytestmark = pytest.mark.full

EASY = [f"easy {at}" for at in range(8)]  # always the same answer: ASC stops at 4
CLOSE = [f"close {at}" for at in range(4)]  # "2" has two votes of three, but "1" comes first


def drawn(question: str, index: int) -> Reply:
    if question.startswith("easy"):
        return Reply("the answer is 1")
    return Reply("the answer is 1" if index % 3 == 0 else "the answer is 2")


def reasc(**options: Any) -> ReASCRunnable:
    return ReASCRunnable(**{"model": Scripted(script=drawn), "max_samples": 9, **options})


def spent(runnable: ReASCRunnable) -> Counter[str]:
    return Counter(question for question, _ in runnable.model.log.calls)  # type: ignore[attr-defined]


@pytest.mark.sync_only
@pytest.mark.parametrize("total", [12, 33])
def test_no_more_samples_are_drawn_and_each_input_has_one(runner: Any, total: int) -> None:
    given = reasc()
    accounts = runner.accounts(given, EASY + CLOSE, total_samples=total)
    counted = spent(given)
    assert set(counted) == {*EASY, *CLOSE}
    assert counted.total() == sum(account["launched"] for account in accounts) == total
    assert len(set(given.model.log.calls)) == total  # type: ignore[attr-defined]  # none is drawn twice


def test_it_is_spent_where_it_changes_something(runner: Any) -> None:
    given = reasc()
    messages = runner.batch(given, EASY + CLOSE, {"max_concurrency": 2}, total_samples=40)
    assert given.model.log.most_live <= 2  # type: ignore[attr-defined]
    counted = spent(given)
    assert max(counted[question] for question in EASY) <= 4 < min(counted[question] for question in CLOSE)
    assert [message.text[-1] for message in messages] == ["1"] * 8 + ["2"] * 4
    evenly = runner.accounts(reasc(rule=Cap(3)), EASY + CLOSE)  # 36 samples
    assert {account["launched"] for account in evenly} == {3}


def test_what_is_left_undecided_has_its_best_answer_so_far(runner: Any) -> None:
    messages = runner.batch(reasc(), EASY + CLOSE, total_samples=20)
    assert {message.response_metadata["reasc"]["reason"] for message in messages} == {"budget"}
    assert all(message.text.startswith("the answer is") for message in messages)
    plenty = runner.accounts(reasc(), EASY, total_samples=1000)
    assert {(account["reason"], account["samples"]) for account in plenty} == {("agreement", 3)}


def test_arrival_order_changes_nothing(runner: Any) -> None:
    inputs = EASY + CLOSE
    one, other = (runner.accounts(reasc(), inputs, total_samples=40) for _ in range(2))
    completed = dict(runner.batch_as_completed(reasc(), inputs, total_samples=40))
    assert one == other == [completed[at].response_metadata["reasc"] for at in range(len(inputs))]


@pytest.mark.sync_only
def test_tokens_are_counted_with_their_prompts(runner: Any) -> None:
    each = PROMPT_TOKENS + 4
    messages = runner.batch(reasc(), EASY + CLOSE, total_tokens=30 * each + 5)
    assert sum(message.usage_metadata["total_tokens"] for message in messages) == 30 * each
    for total in ({"total_tokens": 16 * each, "total_samples": 30}, {"total_tokens": 30 * each, "total_samples": 16}):
        given = reasc()
        runner.batch(given, EASY + CLOSE, **total)
        assert spent(given).total() == 16, "both bounds hold"


@pytest.mark.sync_only
def test_expensive_inputs_wait_where_tokens_count(runner: Any) -> None:
    def script(question: str, index: int) -> Reply:
        reply = drawn(question, index)
        return Reply(f"{'well ' * 300}{reply.text}") if question == CLOSE[0] else reply

    def samples(**total: int) -> list[int]:
        given = reasc(model=Scripted(script=script))
        runner.batch(given, CLOSE, {"max_concurrency": 1}, **total)
        return [spent(given)[question] for question in CLOSE]

    by_tokens = samples(total_tokens=2 * 330 + 15 * 11)
    assert by_tokens[0] < min(by_tokens[1:])
    assert max(by_number := samples(total_samples=20)) - min(by_number) <= 1


@pytest.mark.sync_only
def test_too_few_for_one_each_are_refused_before_any_is_paid_for(runner: Any) -> None:
    given = reasc()
    for total in ({"total_samples": 7}, {"total_tokens": 7}, {"total_samples": 0}, {"total_tokens": -1}):
        with pytest.raises(ConfigurationError, match=rf"{next(iter(total))}=-?\d .*8 inputs"):
            runner.batch(given, EASY, **total)
    assert not spent(given)


@pytest.mark.sync_only
def test_tokens_that_end_before_all_were_asked_are_told_of(runner: Any) -> None:
    given = reasc()
    with pytest.raises(SamplingError, match=r"total_tokens=60, 55 .*7 of 12 inputs"):
        runner.batch(given, EASY + CLOSE, total_tokens=60)
    outputs = runner.batch(reasc(), EASY + CLOSE, total_tokens=60, return_exceptions=True)
    answered = [not isinstance(output, Exception) for output in outputs]
    assert answered == [True] * 5 + [False] * 7  # the first four cost 11 each, so that one more was affordable


def test_a_failing_input_costs_only_itself(runner: Any) -> None:
    given = reasc(model=failing(drawn, lambda question, index: question == EASY[1]))
    outputs = runner.batch(given, [*EASY, object()], total_samples=100, return_exceptions=True)
    assert [at for at, output in enumerate(outputs) if isinstance(output, Exception)] == [1, 8]
    assert isinstance(outputs[8], ConfigurationError)
    assert {output.response_metadata["reasc"]["samples"] for output in [*outputs[:1], *outputs[2:8]]} == {3}
    with pytest.raises(SamplingError, match="samples failed"):
        runner.batch(given, EASY, total_samples=100)


@pytest.mark.sync_only
def test_an_open_gate_accepts_as_it_does_elsewhere(runner: Any) -> None:
    def sure(question: str, index: int) -> Reply:
        return Reply("the answer is 1", logprob=-3.0 if question.startswith("easy") else -1.0)

    given = reasc(model=Scripted(script=sure), calibration=calibration(gate=2.0, weight="count"))
    accounts = runner.accounts(given, EASY + CLOSE, total_samples=30)
    assert [account["reason"] for account in accounts] == ["gate"] * 8 + ["evidence"] * 4


@pytest.mark.sync_only
def test_waiting_for_others_is_none_of_a_questions_time(runner: Any, never: threading.Event) -> None:
    def script(question: str, index: int) -> Reply:
        return Reply("the answer is 1", opens=never if question == "slow" else None)

    given = reasc(model=Scripted(script=script), timeout=1.0)
    slow, *others = runner.batch(given, ["slow", *EASY], total_samples=60, return_exceptions=True)
    assert isinstance(slow, SamplingError)
    assert {message.response_metadata["reasc"]["reason"] for message in others} == {"agreement"}


@pytest.mark.parametrize("fails", [False, True])
def test_every_run_ends(runner: Any, fails: bool, runs: Any) -> None:
    given = reasc(model=failing(drawn, lambda question, index: fails and question == EASY[3]))
    with pytest.raises(SamplingError) if fails else nullcontext():
        runner.batch(given, EASY + CLOSE, {"callbacks": [runs]}, total_samples=30)
    if not fails:
        assert len(runs.runs) == len(EASY + CLOSE) + 30
