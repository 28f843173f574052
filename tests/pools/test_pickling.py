"""All that goes to a worker on another machine, and comes back from it, survives the way."""

import pickle
from typing import Any

import numpy as np
import pytest
from langchain_core.messages import AIMessage

from langchain_reasc import exceptions
from langchain_reasc.data.questions import LabelledQuestion
from langchain_reasc.data.template import Template
from langchain_reasc.pools.asking import Answered, Asked, Asking
from pools.synthetic import Guesser

QUESTION = LabelledQuestion("q0", "Ada has 3 pens and 4 cups. How many things has Ada?", "7", ("seven",))


def again(one: Any) -> Any:
    return pickle.loads(pickle.dumps(one))


def test_what_is_asked_of_a_local_model() -> None:
    backend = pytest.importorskip("langchain_reasc_llama_cpp")
    with backend.ChatLlamaCpp(seed=7, max_tokens=24, n_parallel=2) as model:
        asking = Asking(model, Template().after("Be brief."), 2, "boxed")
        here = asking(Asked(QUESTION))
        copy = again(asking)
        with copy.model:
            there = copy(Asked(QUESTION))
    assert copy.model is not model and (copy.prompt, copy.samples, copy.answer) == (asking.prompt, 2, "boxed")
    assert isinstance(here, Answered) and isinstance(there, Answered)
    assert [one.message.text for one in there.responses] == [one.message.text for one in here.responses]


def test_what_is_asked_of_servers() -> None:
    backend = pytest.importorskip("langchain_reasc_openai")
    retry = backend.RetryPolicy(attempts=2, first_wait=0.1)
    model = backend.ChatOpenAICompatible(
        base_url=["http://a:1", "http://b:2"], model="m", preset="vllm", top_k=3, seed=5, retry=retry, api_key="sk-mine"
    )
    copy = again(Asking(model, Template(), 4)).model
    names = ("base_urls", "model_name", "preset", "top_k", "seed", "retry", "openai_api_key")
    assert [getattr(copy, name) for name in names] == [getattr(model, name) for name in names]


def test_what_is_answered() -> None:
    answered = Asking(Guesser(), Template(), 3)(Asked(QUESTION, held=1))
    assert isinstance(answered, Answered) and len(answered.responses) == 2
    copy = again(answered)
    assert copy.question == QUESTION
    for one, other in zip(copy.responses, answered.responses, strict=True):
        assert (one.columns, one.message, one.info) == (other.columns, other.message, other.info)
        assert one.reading.spans == other.reading.spans and one.reading.signals.keys() == other.reading.signals.keys()
        for name, values in other.reading.signals.items():
            np.testing.assert_array_equal(one.reading.signals[name], values)


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (exceptions.ContextOverflowError("5,000 tokens"), "is_retryable"),
        (exceptions.SamplingError("failed", [ConnectionError("gone"), ValueError("odd")]), "failures"),
        (exceptions.SampleTimeout("late", [TimeoutError("12 s")]), "failures"),
        (exceptions.NoVote("none", [AIMessage("I do not know.")]), "responses"),
        (exceptions.Undecided("spent", {"answer": "7"}), "result"),
        (exceptions.missing_extra("ray", "ray"), "name"),
    ],
)
def test_errors_keep_what_they_know(error: exceptions.ReASCError, name: str) -> None:
    copy = again(error)
    assert type(copy) is type(error) and str(copy) == str(error)
    assert repr(getattr(copy, name)) == repr(getattr(error, name))


def test_any_error_can_be_sent() -> None:
    class Odd(Exception):
        def __init__(self, one: int, other: int) -> None:
            super().__init__(f"{one} and {other}")

    sent = again(exceptions.portable(Odd(1, 2)))
    assert isinstance(sent, exceptions.SamplingError) and str(sent) == "Odd: 1 and 2"
    assert isinstance(exceptions.portable(ValueError("fine")), ValueError)
