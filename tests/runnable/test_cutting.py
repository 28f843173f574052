"""Weak samples are cut in the middle of their streams: as in replay, and only where logprobs can be trusted."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from langchain_reasc import ReASCRunnable
from langchain_reasc.calibration import Calibration, Fingerprint, Observed, calibrate_consensus
from langchain_reasc.method import ASC, Cap, Measure, Response, cuttable, decide, decide_with_cuts

from .fakes import Reply, Scripted

MEASURES = [Measure("token_logprob", "mean"), Measure("token_logprob", "lowest_group", 8)]
TOOL = {"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}}
Told = Callable[[int, str, float], dict[str, Any] | None]


@cache
def said(question: str) -> list[tuple[str, tuple[float, ...]]]:
    """The answers of 16 samples with the logprobs of their tokens, which are higher where they are right."""
    rng = np.random.default_rng(list(question.encode()))
    right = rng.random(16) < rng.uniform(0.3, 0.9)
    return [
        (
            "7" if one else str(rng.integers(1, 5)),
            tuple(np.minimum(rng.normal(-1 + 0.6 * one, 0.6, rng.integers(18, 30)), -0.01).tolist()),
        )
        for one in right
    ]


@cache
def learned() -> Calibration:
    made = []
    for at in range(64):
        samples = said(f"calibration {at}")
        used = decide(ASC() | Cap(16), [Response(answer) for answer, _ in samples]).samples
        scores = [[measure({"token_logprob": values}) for _, values in samples[:used]] for measure in MEASURES]
        made.append(Observed(tuple(int(answer) for answer, _ in samples[:used]), np.array(scores)))
    fingerprint = Fingerprint(model="scripted", sampling={"temperature": 1.0})
    return calibrate_consensus(made, MEASURES, fingerprint=fingerprint, explained=False)


def plain(at: int, token: str, logprob: float) -> dict[str, Any] | None:
    return {"token": token, "logprob": logprob, "bytes": None, "top_logprobs": []}


def model(told: Told = plain, **fields: Any) -> Scripted:
    """Each sample says words, and last its answer; ``told`` says what is told of each token."""

    def script(question: str, index: int) -> Reply:
        answer, values = said(question)[index]
        words = ["hm"] * (len(values) - 3) + ["answer", "is", answer]
        return Reply(" ".join(words), told=lambda at, token: told(at, token, values[at]), **fields)

    return Scripted(script=script)


def expected(question: str) -> tuple[Any, list[int]]:
    """What replay makes of the same samples, drawn one after the other: the decision, and the tokens of each."""
    made, samples = learned(), said(question)
    assert made.measure and made.cut
    drawn = [Response(answer, made.measure({"token_logprob": values})) for answer, values in samples]
    after = [made.cut.tokens(values) for _, values in samples]
    found = decide_with_cuts(made.rule(), drawn, [one is not None for one in after], 16)
    tokens = [(after[at] or 0) if at in found.cut else len(samples[at][1]) for at in range(found.launched)]
    return found, tokens


def test_a_live_run_cuts_as_replay_does_to_the_token(runner: Any) -> None:
    reasc = ReASCRunnable(model=model(), calibration=learned(), concurrency=1, cut_weak=True)
    cut = 0
    for question in (f"q{at}" for at in (*range(24), 31, 73)):  # the last two are decided when a sample is cut
        found, tokens = expected(question)
        result = runner.solve(reasc, question)
        assert [one.status for one in result.responses] == [
            "cut" if at in found.cut else "complete" for at in range(found.launched)
        ]
        told = result.decision.answer, result.decision.samples, result.decision.reason
        assert told == (found.decision.answer, found.decision.samples, found.decision.reason)
        assert [one.output_tokens for one in result.responses] == tokens and result.usage.output_tokens == sum(tokens)
        account = result.message.response_metadata["reasc"]
        paid = sum(tokens[at] for at in found.cut)
        assert account["cut"] == {"samples": len(found.cut), "output": paid}
        assert account["launched"] == found.launched and account["failed"] == 0
        assert not any(one.used or one.weight for one in result.responses if one.status == "cut")
        cut += len(found.cut)
    assert cut > 4


def test_of_a_wave_no_more_than_half_are_cut(runner: Any) -> None:
    """Each of these samples is weak, but for its answer: every one that may be cut is."""
    bad = Reply("hm " * 20 + "answer is 7", told=lambda at, token: plain(at, token, -9.0))
    weak = Scripted(script=lambda question, index: bad)
    result = runner.solve(ReASCRunnable(model=weak, calibration=learned(), concurrency=4, cut_weak=True), "q")
    cut = [one.index for one in result.responses if one.status == "cut"]
    assert cut[:2] == [1, 3] and 2 * len(cut) <= len(result.responses) and cut[:2] == cuttable(range(4), 0)
    assert result.answer == "7" and result.usage.estimated


def test_a_sample_that_ends_with_its_weak_token_is_whole(runner: Any) -> None:
    """Its finish reason comes in a chunk of its own, after that token."""
    ends = Reply("hm " * 20 + "answer is 7", told=lambda at, token: plain(at, token, -99.0 if at == 22 else -0.1))
    reasc = ReASCRunnable(model=Scripted(script=lambda question, index: ends), calibration=learned(), concurrency=4)
    result = runner.solve(reasc, "q")
    assert {one.status for one in result.responses} <= {"complete", "cancelled"}


@pytest.mark.parametrize(
    "options", [{"cut_weak": False}, {"calibration": None}, {"rule": ASC()}, {"tools": True}], ids=str
)
def test_else_none_is_cut(runner: Any, options: dict[str, Any]) -> None:
    options = {"calibration": learned(), "cut_weak": True, **options}
    bound: Any = model().bind(tools=[TOOL]) if options.pop("tools", False) else model()
    reasc = ReASCRunnable(model=bound, concurrency=1, allow_fingerprint_mismatch=True, **options)
    for question in ("q0", "q1", "q2"):
        result = runner.solve(reasc, question)
        assert {one.status for one in result.responses} == {"complete"}
        assert "cut" not in result.message.response_metadata["reasc"]


@pytest.mark.parametrize(("options", "said"), [({}, True), ({"cut_weak": False}, False), ({"rule": ASC()}, False)])
def test_why_none_is_cut_is_in_the_account(runner: Any, options: dict[str, Any], said: bool) -> None:
    why = "a weak response has 60% of the evidence of an average one"
    calibration = learned().model_copy(update={"cutting": None, "uncut": why})
    result = runner.solve(ReASCRunnable(model=model(), calibration=calibration, **options), "q0")
    assert result.message.response_metadata["reasc"].get("uncut") == (why if said else None)


def late(at: int, token: str, logprob: float) -> dict[str, Any] | None:
    """Log-probabilities come with some of the tokens only, as behind a parser of reasoning."""
    return None if at < 4 else plain(at, token, -9.0)


def impossible(at: int, token: str, logprob: float) -> dict[str, Any] | None:
    return plain(at, token, 0.5 if at == 3 else -9.0)


def unknown(at: int, token: str, logprob: float) -> dict[str, Any] | None:
    return plain(at, token, -9999.0 if at == 3 else -9.0)


def missing(at: int, token: str, logprob: float) -> dict[str, Any] | None:
    return plain(at, token, float("nan") if at == 3 else -9.0)


@pytest.mark.parametrize("told", [late, impossible, unknown, missing])
def test_a_response_whose_logprobs_cannot_be_trusted_is_not_cut(runner: Any, told: Told) -> None:
    options: Any = {"calibration": learned(), "max_samples": 4, "cut_weak": True}
    reasc = ReASCRunnable(model=model(told), concurrency=1, on_missing_confidence="count", **options)
    result = runner.solve(reasc, "q0")
    assert {one.status for one in result.responses} == {"complete"}
    good = ReASCRunnable(model=model(lambda at, token, _: plain(at, token, -9.0)), **options)
    assert "cut" in {one.status for one in runner.solve(good, "q0").responses}
