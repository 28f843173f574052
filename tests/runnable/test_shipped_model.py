"""With the model that comes with the package: a real decision, end to end."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from langchain_reasc import Measure, ReASCRunnable, calibrate_mixture
from langchain_reasc.calibration import fingerprint_of
from langchain_reasc.exceptions import ContextOverflowError, FingerprintMismatch
from langchain_reasc.sampling import draw

backend = pytest.importorskip("langchain_reasc_llama_cpp")
pytest.importorskip("llama_cpp")
embedded = backend.embedded_model_path()
pytestmark = pytest.mark.skipif(not embedded.exists(), reason="the shipped model is not there")

MEASURE = Measure("token_logprob", "mean")
BUDGET = 8


@pytest.fixture(scope="module")
def model() -> Iterator[Any]:
    with backend.ChatLlamaCpp(seed=1) as loaded:
        yield loaded


@cache
def problems() -> list[dict[str, Any]]:
    with (embedded.parent / "test.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines][:40]


def easy() -> dict[str, Any]:
    return min(problems(), key=lambda problem: problem["level"])


@pytest.mark.sync_only
def test_more_samples_at_once_change_no_decision(runner: Any, full_precision: Path) -> None:
    with backend.ChatLlamaCpp(model_path=full_precision, seed=1, type_k="f32", type_v="f32") as exact:
        for problem in problems()[:3]:
            decisions = [
                runner.solve(
                    ReASCRunnable(model=exact, concurrency=at_once, max_samples=BUDGET), problem["question"]
                ).decision
                for at_once in (1, 3, 8)
            ]
            assert decisions[0].evidence == decisions[1].evidence == decisions[2].evidence


def test_every_paid_token_is_counted(runner: Any, model: Any, runs: Any) -> None:
    reasc = ReASCRunnable(model=model, concurrency=8)
    result = runner.solve(reasc, easy()["question"], {"callbacks": [runs]})
    reported = [response.message.usage_metadata["output_tokens"] for response in result.responses]
    assert result.usage.output_tokens == sum(reported)
    assert not result.usage.estimated
    unused = [response for response in result.responses if not response.used]
    assert unused, "a wave of 8 where 4 agree leaves some over"
    assert result.usage.unused_output_tokens == sum(response.output_tokens for response in unused)
    for response in result.responses:
        signals = response.message.response_metadata["token_signals"]
        assert {len(values) for values in signals.values()} == {response.output_tokens}
    assert len(runs.of("model")) == len(result.responses)
    assert set(runs.ended.values()) == {"end"}


@pytest.mark.sync_only
def test_the_fingerprint_names_the_file_and_another_temperature_is_refused(runner: Any, model: Any) -> None:
    found = fingerprint_of(model)
    assert found.model == embedded.name
    assert found.model_sha256 is not None and len(found.model_sha256) == 64
    samples = draw(model, easy()["question"], 4)
    scores = [MEASURE(sample.message.response_metadata["token_signals"]) for sample in samples]
    made = calibrate_mixture(scores, measure=MEASURE, fingerprint=found)
    runner.invoke(ReASCRunnable(model=model, calibration=made, max_samples=2), easy()["question"])
    with pytest.raises(FingerprintMismatch, match=r"temperature: calibrated on .*, running 0\.123"):
        ReASCRunnable(model=model.bind(temperature=0.123), calibration=made)


def test_an_error_of_the_model_comes_through(runner: Any, model: Any) -> None:
    with pytest.raises(ContextOverflowError, match="context holds"):
        runner.invoke(ReASCRunnable(model=model), "how many " * 5000)


def test_online_learns_from_real_responses_and_goes_on_from_its_file(model: Any, tmp_path: Path) -> None:
    import asyncio

    path, questions = tmp_path / "state.json", [problem["question"] for problem in problems()]
    reasc = ReASCRunnable(model=model, calibration="online", online_state=path, max_samples=4, audit=0)
    for message in reasc.batch(questions[:34], {"max_concurrency": 8}):
        assert message.response_metadata["reasc"]["method"] == "asc"
    assert reasc.calibrator is not None and reasc.calibrator.wait(30)  # type: ignore[union-attr]
    assert reasc.learned is not None and reasc.learned.n >= 32
    again = ReASCRunnable(model=model, calibration="online", online_state=path, max_samples=4, audit=0)
    assert again.learned == reasc.learned
    one, other = again.solve(questions[35]), asyncio.run(again.asolve(questions[35]))
    assert (one.answer, one.decision.samples) == (other.answer, other.decision.samples)
    assert one.decision.evidence == pytest.approx(other.decision.evidence, rel=0.01)  # batches differ
    assert one.notices[0].startswith(f"learned from {reasc.learned.n} questions without labels, of answers")
