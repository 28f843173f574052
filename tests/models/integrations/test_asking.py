"""What is asked of a model, and what is left as the user set it."""

from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import ConfigurableField, RunnablePassthrough
from runnable.fakes import calibration
from servers.exchange import Exchange
from servers.fake_server import serving

from langchain_reasc import ReASCRunnable
from langchain_reasc.models import prepare_model

from .openai_wires import alternatives
from .providers import PROVIDERS

NOWHERE = "http://127.0.0.1:9"


def model_of(name: str, **fields: Any) -> Any:
    return PROVIDERS[name].model(NOWHERE, **fields)


def reading(model: Any) -> ReASCRunnable:
    """Reads the confidence of four samples, as the scores are low."""
    return ReASCRunnable(model=model, calibration=calibration(mean=100.0), allow_fingerprint_mismatch=True)


def asked(model: Any, *, logprobs: bool = True) -> dict[str, Any]:
    """The arguments of a call of the prepared model, its fields included."""
    source = prepare_model(model, logprobs=logprobs)
    return {**{name: getattr(source.model, name, None) for name in ("logprobs", "top_logprobs")}, **source.kwargs}


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (lambda: model_of("ChatOpenAI"), (True, 20)),
        (lambda: model_of("ChatOpenAI").bind(logprobs=False), (False, None)),
        (lambda: model_of("ChatFireworks"), (True, 5)),
        (lambda: model_of("ChatFireworks").bind(logprobs=True), (True, 5)),
        (lambda: model_of("ChatTogether"), (20, None)),
        (lambda: model_of("ChatTogether").bind(logprobs=3), (3, None)),
        (lambda: model_of("ChatGroq"), (None, None)),
        # the class sends its model_kwargs
        (lambda: model_of("ChatFireworks", model_kwargs={"logprobs": True, "top_logprobs": 1}), (None, None)),
    ],
)
def test_as_many_alternatives_are_asked_for_as_there_are_or_as_the_user_said(model: Any, expected: Any) -> None:
    found = asked(model())
    assert (found["logprobs"], found["top_logprobs"]) == expected
    unread = asked(model_of("ChatFireworks"), logprobs=False)
    assert unread == {"logprobs": None, "top_logprobs": None}


def test_our_own_model_is_asked_for_no_logprobs_beside_its_signals() -> None:
    pytest.importorskip("llama_cpp")
    from langchain_reasc_llama_cpp import ChatLlamaCpp

    with ChatLlamaCpp() as model:
        assert prepare_model(model, logprobs=True).model.logprobs is False  # type: ignore[attr-defined]
        bare = model.model_copy(update={"signals": ()})
        assert prepare_model(bare, logprobs=True).model.logprobs is True  # type: ignore[attr-defined]


def test_where_streams_lose_logprobs_responses_are_taken_whole(runner: Any) -> None:
    with serving(PROVIDERS["ChatTogether"].wire) as served:
        model = PROVIDERS["ChatTogether"].model(served.root, streaming=True)
        assert not prepare_model(model, logprobs=True).streams
        assert prepare_model(model).streams
        assert runner.solve(reading(model), "q").answer == "42"
    assert not any(request.get("stream") for request in served.requests)


def test_a_retried_model_is_asked_with_its_seed_moved_on(runner: Any) -> None:
    fireworks = PROVIDERS["ChatFireworks"]
    with serving(fireworks.wire) as served:
        wrapped = fireworks.model(served.root).bind(seed=3).with_retry(stop_after_attempt=2)
        result = runner.solve(reading(wrapped), "q")
    assert (result.answer, result.decision.samples) == ("42", 4)
    assert {round(response.score, 4) for response in result.responses} == {round(-sum(alternatives(5)) / 5, 4)}
    assert sorted(request["seed"] for request in served.requests) == [3, 4, 5, 6]


def test_models_that_fall_back_on_one_another_are_asked_each_in_its_own_words(runner: Any) -> None:
    """ChatFireworks is refused by its provider; ChatTogether comes after it, and takes other arguments."""
    fireworks, together = PROVIDERS["ChatFireworks"], PROVIDERS["ChatTogether"]

    async def down(exchange: Exchange) -> None:
        assert exchange.body["top_logprobs"] == 5
        exchange.body["logprobs"] = True
        await together.wire(exchange)  # which refuses that

    with serving(down) as first, serving(together.wire) as second:
        wrapped = fireworks.model(first.root).with_fallbacks([together.model(second.root)])
        result = runner.solve(reading(wrapped), "q")
    assert (result.answer, result.decision.samples) == ("42", 4)
    assert {round(response.score, 4) for response in result.responses} == {round(-sum(alternatives(20)) / 20, 4)}
    assert {(request["logprobs"], "top_logprobs" in request) for request in second.requests} == {(20, False)}


def test_what_else_ollama_was_told_arrives_beside_the_seed(runner: Any) -> None:
    ollama = PROVIDERS["ChatOllama"]
    with serving(ollama.wire) as served:
        model = ollama.model(served.root, seed=3, temperature=0.6, num_ctx=512)
        runner.solve(ReASCRunnable(model=model.bind(stop=["END"])), "q")
        assert {request["options"]["seed"] for request in served.requests} == {3, 4, 5, 6}
        for request in served.requests:
            assert {**request["options"], "seed": 0} == {"seed": 0, "temperature": 0.6, "num_ctx": 512, "stop": ["END"]}
        served.exchanges.clear()
        runner.solve(ReASCRunnable(model=model.bind(options={"seed": 30, "top_k": 9})), "q")
    assert sorted(request["options"]["seed"] for request in served.requests) == [30, 31, 32, 33]
    assert {request["options"]["top_k"] for request in served.requests} == {9}


@pytest.mark.parametrize(
    ("model", "notice"),
    [
        (lambda: model_of("ChatOpenAI", temperature=0), "ChatOpenAI: temperature=0 makes every sample the same"),
        (lambda: model_of("ChatOpenAI", extra_body={"temperature": 0}), "temperature=0 makes"),
        (lambda: model_of("ChatOllama", top_k=1), "top_k=1 makes"),
        (lambda: model_of("ChatOllama", temperature=0.7).bind(options={"temperature": 0}), "temperature=0 makes"),
        (lambda: model_of("ChatOpenAI").with_retry().bind(temperature=0), "temperature=0 makes"),
        (lambda: model_of("ChatOpenAI", extra_body={"seed": 3}), "seed=3 cannot be moved on"),
        # sampling in earnest
        (lambda: model_of("ChatOpenAI", temperature=0.7, seed=3, top_p=0.9, extra_body={"top_k": 40}), None),
        (lambda: model_of("ChatAnthropic", temperature=1.0), None),
    ],
)
def test_what_makes_samples_the_same_is_reported(model: Any, notice: str | None) -> None:
    found = prepare_model(model()).notices
    assert len(found) == (notice is not None) and (notice or "") in "".join(found)


@pytest.mark.parametrize(
    ("name", "wrap"),
    [
        ("ChatTogether", lambda model: model.configurable_fields(temperature=ConfigurableField("t"))),
        ("ChatFireworks", lambda model: model.configurable_alternatives(ConfigurableField("which"), other=model)),
        ("ChatFireworks", lambda model: ChatPromptTemplate([MessagesPlaceholder("messages")]) | model),
        ("ChatTogether", lambda model: RunnablePassthrough() | model.bind(logprobs=True)),
    ],
)
def test_models_inside_chains_are_asked_too(runner: Any, wrap: Any, name: str) -> None:
    provider = PROVIDERS[name]
    with serving(provider.wire) as served:
        model = wrap(provider.model(served.root, cache=InMemoryCache()))
        result = runner.solve(reading(model), "q", {"configurable": {"t": 0.5}})
        assert len(served.requests) == 4  # and no cache had them
    (notice,) = result.notices
    assert result.answer == "42" and "closed by the test" in notice
    assert all(response.score is not None for response in result.responses)


def test_a_temperature_of_0_in_a_call_is_reported_too(runner: Any) -> None:
    with serving(PROVIDERS["ChatOpenAI"].wire) as served:
        reasc = ReASCRunnable(model=PROVIDERS["ChatOpenAI"].model(served.root))
        result = runner.solve(reasc, "q", temperature=0, n=2)
        assert [notice.split(" ")[1] for notice in result.notices[:2]] == ["temperature=0", "n=2"]
        assert {request["temperature"] for request in served.requests} == {0}
        assert not any("n" in request for request in served.requests)
        (notice,) = runner.solve(reasc, "q").notices
        assert "finite horizon" in notice


@pytest.mark.full
@pytest.mark.parametrize(
    "model",
    [
        lambda: model_of("ChatOpenAI").model_copy(update={"model_kwargs": {"n": 3}}),
        lambda: model_of("ChatOpenAI", extra_body={"n": 3}),
        lambda: model_of("ChatOpenAI").bind(extra_body={"n": 3}),
        lambda: model_of("ChatGoogleGenerativeAI", n=3),
    ],
)
def test_wherever_n_stands_it_is_set_aside(model: Any) -> None:
    source = prepare_model(model())
    assert "n=3" in source.notices[0]
    assert prepare_model(source.model.bind(**source.kwargs)).notices == ()


@pytest.mark.parametrize(
    ("model", "seeds"),
    [
        (lambda: model_of("ChatOpenAI", seed=1).with_fallbacks([model_of("ChatXAI")]), {"seed": 3}),
        (lambda: model_of("ChatOpenAI", seed=1).with_fallbacks([model_of("ChatMistralAI")]), {}),  # named otherwise
        (lambda: RunnablePassthrough() | model_of("ChatOpenAI", seed=1), {}),  # a step gets no arguments
    ],
)
def test_a_seed_is_moved_on_where_all_models_inside_know_it(model: Any, seeds: dict[str, int]) -> None:
    source = prepare_model(model())
    assert source.call_kwargs(2) == seeds
    assert ("seed" in "".join(source.notices)) == (not seeds)
