"""calibration="mixture": a batch is the paper's Algorithm 2; single calls count votes until they have seen enough."""

import random
from typing import Any

import pytest

from langchain_reasc import Cap, ReASCRunnable, Response, calibrate_mixture, decide
from langchain_reasc.exceptions import LogprobsUnavailable, SamplingError

from .fakes import TOP_K, Reply, Scripted, failing

QUESTIONS = [f"q{i}" for i in range(24)]
BUDGET = 6


def drawn(question: str, index: int) -> Reply:
    """Two groups of questions, one the model is sure of; every sample is fixed by its question and index."""
    rng = random.Random(f"{question} {index}")
    sure = int(question[1:]) % 2 == 0
    score = max(0.01, rng.gauss(3.0 if sure else 1.0, 0.2))
    return Reply(f"it is {1 if sure else rng.choice([1, 2, 3])}", -round(score, 3))


def online(**fields: Any) -> ReASCRunnable:
    fields = {"model": Scripted(script=drawn), "confidence": TOP_K, "max_samples": BUDGET, **fields}
    return ReASCRunnable(calibration="mixture", **fields)


def score(question: str, index: int = 0) -> float:
    return -(drawn(question, index).logprob or 0)


def answer(question: str, index: int) -> str:
    return drawn(question, index).text.split()[-1]


def test_a_batch_equals_calibrating_on_first_scores_then_deciding(runner: Any) -> None:
    accounts = runner.accounts(online(), QUESTIONS)
    rule = calibrate_mixture([score(q) for q in QUESTIONS], measure=TOP_K).rule() | Cap(BUDGET)
    expected = [decide(rule, [Response(answer(q, i), score(q, i)) for i in range(BUDGET)]) for q in QUESTIONS]
    decided = [(account["answer"], account["samples"], account["reason"]) for account in accounts]
    assert decided == [(one.answer, one.samples, one.reason) for one in expected]
    assert {"gate"} < {a["reason"] for a in accounts}  # both stages are in play


@pytest.mark.full
def test_completion_order_and_concurrency_change_nothing(runner: Any) -> None:
    def decisions(messages: list[Any]) -> list[Any]:
        accounts = [message.response_metadata["reasc"] for message in messages]
        return [(account["answer"], account["samples"], account["evidence"]) for account in accounts]

    reasc = online()
    whole = decisions(runner.batch(reasc, QUESTIONS))
    calls = reasc.model.log.calls  # type: ignore[attr-defined]
    assert sorted(calls[: len(QUESTIONS)]) == sorted((question, 0) for question in QUESTIONS)
    assert len(set(calls)) == len(calls), "all first responses are drawn before any decision, and none twice"
    narrow = decisions(runner.batch(online(concurrency=1), QUESTIONS, {"max_concurrency": 3}))
    as_completed = dict(runner.batch_as_completed(online(), QUESTIONS))
    assert whole == narrow == decisions([as_completed[at] for at in range(len(QUESTIONS))])


@pytest.mark.sync_only
def test_scores_that_determine_nothing_fall_back_to_counting_and_say_so(runner: Any) -> None:
    model = Scripted(script=lambda question, index: Reply("it is 1", -1.0))
    assert "4 responses" in runner.accounts(online(), QUESTIONS[:4])[0]["notices"][0]
    for account in runner.accounts(online(model=model), QUESTIONS[:20]):
        assert (account["method"], account["samples"]) == ("asc", 4)
        [notice] = account["notices"]
        assert "20 scores equal" in notice


@pytest.mark.full
def test_an_input_that_fails_or_has_no_logprobs_costs_only_itself(runner: Any) -> None:
    def script(question: str, index: int) -> Reply:
        return Reply("it is 1", logprob=None) if question == "q3" else drawn(question, index)

    model = failing(script, lambda question, index: question == "q5")
    outputs = runner.batch(online(model=model), QUESTIONS, return_exceptions=True)
    assert {at: type(one) for at, one in enumerate(outputs) if isinstance(one, Exception)} == {
        3: LogprobsUnavailable,
        5: SamplingError,
    }
    others = [score(question) for question in QUESTIONS if question not in ("q3", "q5")]
    rule = calibrate_mixture(others, measure=TOP_K).rule() | Cap(BUDGET)
    expected = decide(rule, [Response(answer("q0", i), score("q0", i)) for i in range(BUDGET)])
    assert outputs[0].response_metadata["reasc"]["evidence"] == pytest.approx(expected.evidence)
    counting = online(model=Scripted(script=script), on_missing_confidence="count")
    account = runner.accounts(counting, QUESTIONS)[3]
    assert any("no confidence" in notice for notice in account["notices"])


@pytest.mark.sync_only
def test_windows_longer_than_the_responses_are_pointed_out(runner: Any) -> None:
    measure = type(TOP_K)("top_k", "bottom_group", 128)
    for account in runner.accounts(online(confidence=measure), QUESTIONS[:20]):
        assert "(128 tokens)" in account["notices"][0]


@pytest.mark.full
@pytest.mark.sync_only
def test_single_calls_count_votes_until_enough_was_seen_and_the_next_process_starts_warm(runner: Any) -> None:
    reasc = online()
    questions = [f"q{i}" for i in range(64)]
    before = [runner.solve(reasc, question) for question in questions]
    expected = calibrate_mixture([score(question) for question in questions], measure=TOP_K)
    assert reasc.learned is not None
    assert (reasc.learned.n, reasc.learned.mean) == (64, pytest.approx(expected.mean))
    assert reasc.learned.gate.threshold == pytest.approx(expected.gate.threshold)
    assert reasc.learned.fingerprint.model == "scripted"
    for result in before:
        assert result.message.response_metadata["reasc"]["method"] == "asc" and len(result.notices) == 1
    after = runner.solve(reasc, max(questions, key=score))
    assert (after.decision.reason, after.message.response_metadata["reasc"]["method"]) == ("gate", "reasc")
    warm = ReASCRunnable(model=Scripted(script=drawn), calibration=reasc.learned)
    assert runner.solve(warm, max(QUESTIONS, key=score)).decision.reason == "gate"
