"""Two real models: SmolLM2-135M, which any package index has, before the model that comes with the package."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from langchain_reasc import Escalation, ReASCRunnable

backend = pytest.importorskip("langchain_reasc_llama_cpp")
pytest.importorskip("llama_cpp")
embedded = backend.embedded_model_path()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.sync_only,
    pytest.mark.skipif(not embedded.exists(), reason="the shipped model is not built yet"),
]


@pytest.fixture(scope="module")
def both(smollm2: Path) -> Iterator[tuple[Any, Any]]:
    chat = backend.ChatLlamaCpp
    with chat(model_path=smollm2, seed=1, max_tokens=96) as small, chat(seed=1) as large:
        yield small, large


def problems(count: int) -> list[dict[str, Any]]:
    with (embedded.parent / "test.jsonl").open(encoding="utf-8") as lines:
        return sorted((json.loads(line) for line in lines), key=lambda one: one["level"])[:count]


def test_what_smollm_is_not_sure_of_goes_to_the_model_that_can_do_it(runner: Any, both: Any) -> None:
    small, large = both
    reasc = ReASCRunnable(model=small, rule="race", escalate_to=large, answer="number")
    asked = problems(4)
    accounts = [runner.account(reasc, one["question"]) for one in asked]
    escalated = [(one, told) for one, told in zip(asked, accounts, strict=True) if told["answered_by"] == "large"]
    assert len(escalated) >= 2, "a model of 135M hardly ever says the same number three times"
    for told in accounts:
        models = told["models"]
        assert told["tokens"]["input"] == sum(one["input"] for one in models.values())
        assert told["tokens"]["output"] == sum(one["output"] for one in models.values())
        assert not told["tokens"]["estimated"]
    right = [told["answer"] == str(one["answer"]) for one, told in escalated]
    assert sum(right) > len(right) / 2


def test_the_shipped_model_is_asked_in_the_shadow_of_smollm(runner: Any, both: Any) -> None:
    small, large = both
    reasc = ReASCRunnable(model=large, escalate_to=Escalation(small, within=0.3), answer="number", calibration="online")
    accounts = [runner.account(reasc, one["question"]) for one in problems(3)]
    assert all(one["answered_by"] == "large" and one["shadowed"] for one in accounts)
    assert reasc.learned is not None and reasc.learned.escalation is not None
    assert reasc.learned.escalation.rows == 3
