"""Which integration a class goes by: what is known, and what users register."""

from itertools import count
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field
from runnable.fakes import calibration, openai_token

from langchain_reasc import ReASCRunnable
from langchain_reasc.exceptions import ConfigurationError, LogprobsUnavailable
from langchain_reasc.models import KNOWN, Integration, integration_of, prepare_model, register_integration

NUMBERS = count()


class Bare(BaseChatModel):
    """A class nobody knows: no fields for logprobs, which it returns if asked for ``ranked``."""

    calls: Any = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "bare"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        self.calls.append(kwargs)
        k = kwargs.get("ranked", 0)
        content = [openai_token(token, -1.0, k) for token in ("it", " is", " 42")]
        message = AIMessage("it is 42", response_metadata={"logprobs": {"content": content}} if k else {})
        return ChatResult(generations=[ChatGeneration(message=message)])


class Passing(Bare):
    """Passes on what it does not know itself, as many integrations do."""

    model_kwargs: dict[str, Any] = Field(default_factory=dict)


class Shaped(Bare):
    logprobs: bool | None = None
    top_logprobs: int | None = None


def reasc(model: Any, **fields: Any) -> ReASCRunnable:
    return ReASCRunnable(model=model, calibration=calibration(), allow_fingerprint_mismatch=True, **fields)


def derived(base: type[Any] = Bare) -> Any:
    """A class of its own for each test, since what is registered stays so."""
    return type(f"Derived{next(NUMBERS)}", (base,), {"__module__": __name__})


def path_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def registered(described: Any, base: type[Any] = Bare) -> Any:
    kind = derived(base)
    register_integration(path_of(kind))(described if callable(described) else lambda model: described)
    return kind


def test_a_registered_class_is_asked_in_its_own_words(runner: Any) -> None:
    model = registered(Integration(logprobs="ranked", top_logprobs=None, max_top_logprobs=3))()
    assert runner.solve(reasc(model), "q").answer == "42"
    assert {kwargs["ranked"] for kwargs in model.calls} == {3}


def test_it_holds_for_derived_classes_and_the_nearest_wins() -> None:
    base = registered(Integration(max_top_logprobs=1))
    below = derived(base)
    assert integration_of(below()).max_top_logprobs == 1
    register_integration(path_of(below))(lambda model: Integration(max_top_logprobs=2))
    assert (integration_of(below()).max_top_logprobs, integration_of(base()).max_top_logprobs) == (2, 1)


def test_a_registration_wins_over_what_is_known() -> None:
    langchain_openai = pytest.importorskip("langchain_openai")
    path = "langchain_openai.ChatOpenAI"
    register_integration(path)(lambda model: Integration(max_top_logprobs=2))
    try:
        source = prepare_model(langchain_openai.ChatOpenAI(model="m", api_key="x"), logprobs=True)
    finally:
        register_integration(path)(KNOWN["langchain_openai.BaseChatOpenAI"])  # type: ignore[type-var]
    assert source.model.top_logprobs == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", ["ChatMine", "", "my-package.ChatMine", 3])
def test_only_class_paths_can_be_registered(path: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"package\.Class"):
        register_integration(*([path] if path else []))


@pytest.mark.parametrize(
    ("described", "says"),
    [
        ({"n": 1}, r"Derived\d+ .*dict"),
        (lambda model: Integration(n=model.nothing), r"Derived\d+ .*AttributeError.*nothing"),
    ],
)
def test_a_registration_that_is_wrong_is_named(described: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        reasc(registered(described)())


def test_unknown_classes_are_asked_by_openai_s_names_where_they_show_that_they_know_them(runner: Any) -> None:
    source = prepare_model(Shaped(), logprobs=True)
    assert (source.model.logprobs, source.model.top_logprobs) == (True, 20)  # type: ignore[attr-defined]
    assert not source.kwargs
    model = Passing()
    with pytest.raises(LogprobsUnavailable):
        runner.solve(reasc(model), "q")
    assert model.calls[0] == {"logprobs": True, "top_logprobs": 20}


def test_any_other_unknown_class_is_left_alone_and_the_error_says_so(runner: Any) -> None:
    model = Bare()
    with pytest.raises(LogprobsUnavailable, match=r"Bare .*register_integration"):
        runner.solve(reasc(model), "q")
    result = runner.solve(reasc(model, on_missing_confidence="count"), "q")
    assert result.answer == "42"
    assert any("4 of 4 responses" in notice for notice in result.notices)
    assert model.calls == [{}] * len(model.calls)
