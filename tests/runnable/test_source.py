"""What is sampled: a fresh response each time, however the model was wrapped."""

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.globals import set_llm_cache
from langchain_core.runnables import Runnable, RunnableConfig

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.models import prepare_model, to_messages
from langchain_reasc.sampling import SampledResponse, Wave

from .fakes import Scripted, saying

WRAPPINGS = {
    "plain": lambda model: model,
    "not streaming": lambda model: model.model_copy(update={"disable_streaming": True}),
    "bound": lambda model: model.bind(stop=["END"]).with_config(tags=["mine"]),
    "retry": lambda model: model.with_retry(stop_after_attempt=2, wait_exponential_jitter=False),
    "fallbacks": lambda model: model.with_fallbacks([saying("fallback")]),
}


def drawn(
    runner: Any, model: Runnable[Any, Any], n: int = 3, config: RunnableConfig | None = None
) -> list[SampledResponse]:
    source = prepare_model(model, logprobs=True)
    return sorted(runner.wave(Wave(source, to_messages("q"), range(n), config or {})), key=lambda s: s.index)


@pytest.fixture
def global_cache() -> Iterator[None]:
    set_llm_cache(InMemoryCache())
    yield
    set_llm_cache(None)


@pytest.mark.parametrize("wrap", WRAPPINGS.values(), ids=WRAPPINGS)
def test_the_global_cache_does_not_collapse_samples(runner: Any, wrap: Any, global_cache: None) -> None:
    for _ in range(2):  # the second time a cache would have them all
        samples = drawn(runner, wrap(saying("1", "2", "3")))
        assert [sample.message.text for sample in samples] == [f"the answer is {n}" for n in (1, 2, 3)]


@pytest.mark.sync_only
@pytest.mark.parametrize("wrap", WRAPPINGS.values(), ids=WRAPPINGS)
@pytest.mark.parametrize(("seed", "bound"), [(5, None), (None, None), (5, 20)])
def test_a_seed_is_moved_on_from_sample_to_sample(runner: Any, wrap: Any, seed: int | None, bound: int | None) -> None:
    model = saying("1").model_copy(update={"seed": seed})
    drawn(runner, wrap(model.bind(seed=bound) if bound else model))
    first = bound or seed
    expected = [first, first + 1, first + 2] if first else [-1] * 3
    assert sorted(kwargs.get("seed", -1) for kwargs in model.log.kwargs) == expected


def test_bound_arguments_and_config_reach_every_call(runner: Any) -> None:
    model = saying("1")
    inner = model.bind(stop=["a"], flavour="x").with_config(tags=["inner"], metadata={"who": "inner", "kept": 1})
    drawn(runner, inner.bind(stop=["b"]), config={"tags": ["call"], "metadata": {"who": "call"}})
    assert [(kwargs["stop"], kwargs["flavour"]) for kwargs in model.log.kwargs] == [(["b"], "x")] * 3
    assert len(model.log.configs) == 3
    for config in model.log.configs:
        assert {"inner", "call", "nostream"} <= set(config["tags"])
        assert (config["metadata"]["who"], config["metadata"]["kept"]) == ("call", 1)


class Parallel(Scripted):
    """Samples in parallel itself, but only to fail."""

    def sample(self, messages: Any, *, n: int, first: int = 0, **kwargs: Any) -> Any:
        raise ConnectionError("parallel sampler down")

    asample = sample

    def _begin(self, messages: Any) -> Any:
        raise ConnectionError("down")


def test_fallbacks_are_not_bypassed_by_parallel_sampling(runner: Any) -> None:
    model = Parallel(script=None).with_fallbacks([saying("7")])
    assert [sample.message and sample.message.text for sample in drawn(runner, model)] == ["the answer is 7"] * 3


@pytest.mark.parametrize("wrap", [lambda model: model | (lambda m: m.text), lambda model: model | (lambda m: 3)])
def test_a_model_that_returns_no_message_is_a_configuration_error(runner: Any, wrap: Any) -> None:
    for sample in drawn(runner, wrap(saying("1")), n=2):
        assert sample.status == "failed"
        with pytest.raises(ConfigurationError, match=r"got (TextAccessor|int)"):
            raise sample.error
