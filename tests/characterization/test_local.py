"""The shipped model: the same seed gives the same samples, alone, together and through each face."""

from collections.abc import Callable
from typing import Any

import pytest

import langchain_reasc as lr
from langchain_reasc import ChatReASC, ReASCRunnable

from .conftest import Runner

Golden = Callable[..., None]
backend = pytest.importorskip("langchain_reasc_llama_cpp")
QUESTION = "Emma has 27 old and 14 new cups. How many more does Emma need to have 60?"


@pytest.fixture(scope="module")
def model() -> Any:
    if not backend.embedded_model_path().exists():
        pytest.skip("the shipped model is not built yet")
    with backend.ChatLlamaCpp(seed=3, max_tokens=12) as made:
        yield made


def test_seeds(model: Any, run: Runner) -> None:
    """What a model says may depend on the processor; that it says it again may not."""
    reasc = ReASCRunnable(model=model, rule=lr.Cap(3), max_samples=3, answer="text")
    first, again = (run(reasc, "solve", QUESTION) for _ in range(2))
    texts = [one.message.text for one in first.responses]
    assert texts == [one.message.text for one in again.responses]
    assert len(set(texts)) > 1, "the seeds of samples differ"
    other = run(reasc.model_copy(update={"model": model.model_copy(update={"seed": 4})}), "solve", QUESTION)
    assert texts != [one.message.text for one in other.responses]
    assert texts[1:] == [one.message.text for one in other.responses][:-1], "seeds are counted on from the model's"
    one_by_one = run(reasc.model_copy(update={"concurrency": 1}), "solve", QUESTION)
    assert texts == [one.message.text for one in one_by_one.responses]


def test_what_a_response_carries(model: Any, run: Runner, golden: Golden) -> None:
    """Which figures come with a response, and what is left of them in the winning message."""
    result = run(ReASCRunnable(model=model, rule=lr.Cap(2), max_samples=2, answer="text"), "solve", QUESTION)
    metadata = result.responses[0].message.response_metadata
    signals = {name: len(values) for name, values in metadata["token_signals"].items()}
    golden({"metadata": sorted(metadata), "winner": sorted(result.message.response_metadata), "signals": signals})
    golden([result.usage.bill["input_tokens"], result.usage.cached_tokens, result.usage.output_tokens], "usage")
    assert ChatReASC(model=model).invoke(QUESTION).text == result.responses[0].message.text
