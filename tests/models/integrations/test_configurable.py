"""Models that the config of a call chooses or sets: prepared as they are under it, by whichever of LangChain's ways."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.globals import set_llm_cache
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import ConfigurableField, RunnableLambda
from runnable.fakes import calibration, saying
from servers.fake_server import Served, serving

from langchain_reasc import ReASCRunnable
from langchain_reasc.exceptions import ConfigurationError, FingerprintMismatch
from langchain_reasc.models import prepare_model
from langchain_reasc.models.fingerprint import Fingerprint
from langchain_reasc.runnable.voter import running_fingerprint

from .openai_wires import OpenAI
from .providers import KEY, PROVIDERS

chat_models = pytest.importorskip("langchain.chat_models")
NOWHERE = "http://127.0.0.1:9"
SETTABLE = ("model", "model_provider", "temperature", "seed", "cache", "api_key")


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(OpenAI()) as running:
        yield running


@pytest.fixture
def global_cache() -> Iterator[None]:
    set_llm_cache(InMemoryCache())
    yield
    set_llm_cache(None)


def initialised(served: Served, *, fields: Any = SETTABLE, **options: Any) -> Any:
    given: dict[str, Any] = {"model_provider": "openai", "base_url": served.url, "api_key": KEY, **options}
    return chat_models.init_chat_model("m", configurable_fields=fields, max_retries=0, **given)


def set_by_field(served: Served) -> Any:
    model = PROVIDERS["ChatOpenAI"].model(served.root)
    names = {"model_name": "model", "temperature": "temperature", "seed": "seed", "cache": "cache"}
    return model.configurable_fields(**{field: ConfigurableField(name) for field, name in names.items()})


def chosen(served: Served) -> Any:
    """As an alternative to a model that says no logprobs, whose fields have names of their own."""
    other = PROVIDERS["ChatAnthropic"].model(NOWHERE)
    return other.configurable_alternatives(ConfigurableField("which"), default_key="other", this=set_by_field(served))


def chosen_by_prefix(served: Served) -> Any:
    other = PROVIDERS["ChatAnthropic"].model(NOWHERE)
    return other.configurable_alternatives(
        ConfigurableField("which"), prefix_keys=True, this=lambda: set_by_field(served)
    )


# How it is made, and what its settings are prefixed with.
WAYS: dict[str, tuple[Any, str]] = {
    "init_chat_model": (initialised, ""),
    "any field, with a prefix": (lambda served: initialised(served, fields="any", config_prefix="first"), "first_"),
    "alternatives": (chosen, ""),
    "alternatives made when called": (chosen_by_prefix, "which==this/"),
    "fallbacks": (
        lambda served: set_by_field(served).with_fallbacks([PROVIDERS["ChatXAI"].model(NOWHERE)]).with_retry(),
        "",
    ),
    "chain": (
        lambda served: ChatPromptTemplate.from_messages([MessagesPlaceholder("messages")]) | set_by_field(served),
        "",
    ),
}


def config_of(way: str, **settings: Any) -> Any:
    which = {"which": "this"} if "alternatives" in way else {}
    return {"configurable": which | {WAYS[way][1] + name: value for name, value in settings.items()}}


def reasc(model: Any) -> ReASCRunnable:
    """Draws four samples of each question, as the scores are low."""
    return ReASCRunnable(model=model, calibration=calibration(mean=100.0), allow_fingerprint_mismatch=True)


@pytest.mark.parametrize("way", WAYS)
def test_samples_are_drawn_afresh_with_logprobs_and_seeds_moved_on(
    runner: Any, served: Served, global_cache: None, way: str
) -> None:
    solving = reasc(WAYS[way][0](served))
    for model, temperature in (("m2", 0), ("m2", 0)):  # the second time a cache would have them all
        result = runner.solve(solving, "q", config_of(way, model=model, temperature=temperature, seed=30))
        assert (result.answer, len(served.requests)) == ("42", 4)
        assert {(request["model"], request["temperature"]) for request in served.requests} == {(model, temperature)}
        assert {(request["logprobs"], request["top_logprobs"]) for request in served.requests} == {(True, 20)}
        notices = " ".join(result.notices)
        assert "ChatOpenAI: temperature=0" in notices
        assert ("seed=30" in notices) == (way == "chain")  # whose arguments end at its first step
        seeds = [30] * 4 if way == "chain" else [30, 31, 32, 33]
        assert sorted(request["seed"] for request in served.requests) == seeds
        served.exchanges.clear()


def test_the_fingerprint_is_that_of_the_model_it_turns_out_to_be(runner: Any, served: Served) -> None:
    source = prepare_model(initialised(served).bind(stop=["END"]))
    found = running_fingerprint(source.resolved({"configurable": {"model": "m2", "temperature": 0.3}}))
    assert running_fingerprint(source) == Fingerprint()
    assert (found.model, found.sampling, found.stop) == ("m2", {"temperature": 0.3}, ("END",))
    made = calibration(fingerprint=Fingerprint(model="m2", sampling={"temperature": 0.5}), mean=100.0)
    reasc = ReASCRunnable(model=initialised(served), calibration=made)
    config = {"configurable": {"model": "m2", "temperature": 0.5}}
    assert runner.solve(reasc, "q", config).responses[0].score is not None
    with pytest.raises(FingerprintMismatch, match=r"model: .*'m2'.*'m'"):
        runner.solve(reasc, "q")


def test_another_provider_is_asked_in_its_own_words(served: Served) -> None:
    source = prepare_model(initialised(served), logprobs=True)
    xai = source.resolved({"configurable": {"model_provider": "xai", "model": "grok-3"}})
    assert (xai.model.top_logprobs, xai.no_logprobs) == (8, None)  # type: ignore[attr-defined]
    claude = source.resolved({"configurable": {"model_provider": "anthropic", "model": "claude-x"}})
    assert "ChatAnthropic" in str(claude.no_logprobs)
    assert "ChatAnthropic" in str(prepare_model(chosen(served)).resolved({}).no_logprobs)


def test_without_a_model_until_the_call(served: Served) -> None:
    source = prepare_model(chat_models.init_chat_model(base_url=served.url, model_provider="openai", api_key=KEY))
    with pytest.raises(ConfigurationError, match=r"config.*nothing"):
        source.resolved({})
    assert running_fingerprint(source.resolved({"configurable": {"model": "m3"}})).model == "m3"


def test_further_arguments_are_bound_under_a_config(served: Served) -> None:
    source, config = prepare_model(initialised(served), stop=["A"]), {"configurable": {"seed": 3}}
    found = source.resolved(config, {"temperature": 0})
    assert source.notices == (), "nobody knows yet"
    assert found.call_kwargs(2) == {"stop": ["A"], "temperature": 0, "seed": 5}
    assert len(found.notices) == 1


def test_what_a_config_says_twice_is_made_once(served: Served) -> None:
    source = prepare_model(initialised(served))
    config: Any = {"configurable": {"temperature": 0.5, "thread_id": "1"}}
    with ThreadPoolExecutor(8) as threads:
        one, *others = threads.map(source.resolved, [config] * 8)
    assert all(other is one for other in others)
    assert source.resolved({"configurable": {"temperature": 0.5, "thread_id": "2"}, "tags": ["x"]}) is one
    for temperature in (0.1, 0.2, 0.3, 0.6):
        other = source.resolved({"configurable": {"temperature": temperature}})
        assert other.model.temperature == temperature  # type: ignore[attr-defined]
    assert source.resolved({"configurable": {"temperature": 0.5}}) is not one, "only the last few are kept"
    fields = prepare_model(chosen(served))
    first, again, second = (
        fields.resolved(config_of("alternatives", **given))
        for given in ({"seed": 1}, {"seed": 1, "id": 2}, {"seed": 2})
    )
    assert first is again and first is not second
    by_prefix = prepare_model(chosen_by_prefix(served))
    configs = [config_of("alternatives made when called", seed=seed) for seed in (1, 2)]
    seeds = [by_prefix.resolved(config).call_kwargs(0)["seed"] for config in configs]
    assert seeds == [1, 2], "what a factory makes cannot be known beforehand"


def test_what_is_configured_beforehand_holds_unless_the_call_says_otherwise(served: Served) -> None:
    for model in (initialised(served), RunnableLambda(list) | set_by_field(served)):
        source = prepare_model(model.with_config(configurable={"temperature": 0.4}, tags=["mine"]))
        configs: list[Any] = [{}, {"configurable": {"temperature": 0.8}}]
        found = [source.resolved(config) for config in configs]
        temperatures = [getattr(one.model, "last", one.model) for one in found]
        assert [getattr(one, "bound", one).temperature for one in temperatures] == [0.4, 0.8]
        assert {"mine"} <= set(found[0].call_config({}, 0)["tags"])


def test_the_callbacks_of_the_run_above_are_not_bound_to_it(served: Served) -> None:
    handler, source = BaseCallbackHandler(), prepare_model(set_by_field(served))
    inside: list[Any] = []
    config: Any = {"callbacks": [handler], "tags": ["above"], "configurable": {"seed": 3}}
    RunnableLambda(lambda _: inside.append(source.resolved({"configurable": {"seed": 4}}))).invoke(0, config)
    tagged = saying("1").with_config(tags=["mine"])
    RunnableLambda(lambda _: inside.append(prepare_model(tagged))).invoke(0, config)
    for bound, tags in zip((one.config for one in inside), ([], ["mine"]), strict=True):
        assert (bound.get("callbacks"), bound.get("tags", [])) == (None, tags)


@pytest.mark.parametrize(
    ("make", "settings", "says"),
    [
        (chosen, {"which": "neither"}, r"which: .*neither"),
        (initialised, {"model_provider": "nobody"}, r"has model_provider: .*nobody"),
        (initialised, {"api_key": {"sk": "secret-3"}, "temperature": "hot"}, r"temperature: "),
    ],
)
def test_a_config_without_a_model_is_explained_without_its_secrets(
    served: Served, make: Any, settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigurationError, match=says) as raised:
        prepare_model(make(served)).resolved({"configurable": settings})
    assert "secret-3" not in f"{raised.value} {raised.value.__cause__} {raised.value.__context__}"
