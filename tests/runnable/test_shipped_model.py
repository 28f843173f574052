"""With the model that comes with the package: a real decision, end to end."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from langchain_reasc import Measure, ReASCRunnable, calibrate_mixture
from langchain_reasc.exceptions import ContextOverflowError, FingerprintMismatch
from langchain_reasc.models.fingerprint import fingerprint_of
from langchain_reasc.sampling import draw_samples

from .fakes import Unforeseen

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


def test_every_paid_token_is_counted(runner: Any, model: Any, runs: Any) -> None:
    reasc = ReASCRunnable(model=model, rule=Unforeseen(), concurrency=8)
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
    samples = draw_samples(model, easy()["question"], 4)
    scores = [MEASURE(sample.message.response_metadata["token_signals"]) for sample in samples]
    made = calibrate_mixture(scores, measure=MEASURE, fingerprint=found)
    runner.invoke(ReASCRunnable(model=model, calibration=made, max_samples=2), easy()["question"])
    with pytest.raises(FingerprintMismatch, match=r"temperature: .*0\.123"):
        ReASCRunnable(model=model.bind(temperature=0.123), calibration=made)


def test_an_error_of_the_model_comes_through(runner: Any, model: Any) -> None:
    with pytest.raises(ContextOverflowError, match="context holds"):
        runner.invoke(ReASCRunnable(model=model), "how many " * 5000)
