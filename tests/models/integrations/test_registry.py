"""Which integration a class goes by: what is known, what users register, what packages bring."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field
from runnable.fakes import calibration, openai_token, saying

from langchain_reasc import ReASCRunnable
from langchain_reasc.exceptions import ConfigurationError, LogprobsUnavailable
from langchain_reasc.models.integrations import Integration, integration_of, register_integration, registry
from langchain_reasc.models.prepared import PreparedModel


class Bare(BaseChatModel):
    """A class nobody knows: no fields for logprobs."""

    calls: Any = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "bare"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        self.calls.append(kwargs)
        message = AIMessage("it is 42", response_metadata=self.metadata_of(kwargs))
        return ChatResult(generations=[ChatGeneration(message=message)])

    def metadata_of(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        if k := kwargs.get("ranked"):
            return {"logprobs": {"content": [openai_token(token, -1.0, k) for token in ("it", " is", " 42")]}}
        return {}


class Passing(Bare):
    """Passes on what it does not know itself, as many integrations do."""

    model_kwargs: dict[str, Any] = Field(default_factory=dict)


class Shaped(Bare):
    logprobs: bool | None = None
    top_logprobs: int | None = None


@pytest.fixture(autouse=True)
def nothing_left_registered() -> Iterator[None]:
    before = dict(registry._registered)
    yield
    registry._registered.clear()
    registry._registered.update(before)
    registry._entry_points.cache_clear()


def reasc(model: Any, **fields: Any) -> ReASCRunnable:
    return ReASCRunnable(model=model, calibration=calibration(), allow_fingerprint_mismatch=True, **fields)


def path_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def test_a_registered_class_is_asked_in_its_own_words(runner: Any) -> None:
    @register_integration(path_of(Bare))
    def bare(model: Bare) -> Integration:
        return Integration(logprobs="ranked", top_logprobs=None, max_top_logprobs=3)

    model = Bare()
    assert runner.solve(reasc(model), "q").answer == "42"
    assert {kwargs["ranked"] for kwargs in model.calls} == {3}


def test_it_holds_for_derived_classes_and_the_nearest_wins() -> None:
    register_integration(path_of(Bare))(lambda model: Integration(max_top_logprobs=1))
    assert integration_of(Passing()).max_top_logprobs == 1
    register_integration(path_of(Passing))(lambda model: Integration(max_top_logprobs=2))
    assert (integration_of(Passing()).max_top_logprobs, integration_of(Bare()).max_top_logprobs) == (2, 1)


def test_the_model_itself_may_decide() -> None:
    register_integration(path_of(Shaped))(lambda model: Integration(max_top_logprobs=model.top_logprobs or 9))
    assert integration_of(Shaped(top_logprobs=4)).max_top_logprobs == 4
    assert integration_of(Shaped()).max_top_logprobs == 9


def test_a_registration_wins_over_what_is_known() -> None:
    langchain_openai = pytest.importorskip("langchain_openai")
    register_integration("langchain_openai.ChatOpenAI")(lambda model: Integration(max_top_logprobs=2))
    fields = {"model": "m", "api_key": "x", "base_url": "http://127.0.0.1:9"}
    source = PreparedModel.of(langchain_openai.ChatOpenAI(**fields), logprobs=True)
    assert source.model.top_logprobs == 2  # type: ignore[attr-defined]
    azure = langchain_openai.AzureChatOpenAI(api_key="x", azure_endpoint="http://127.0.0.1:9", api_version="v")
    assert integration_of(azure).max_top_logprobs == 20


@pytest.mark.parametrize("path", ["ChatMine", "", "my-package.ChatMine", "my_package.", 3])
def test_only_class_paths_can_be_registered(path: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"package\.Class"):
        register_integration(*([path] if path else []))


def test_what_is_registered_must_return_an_integration() -> None:
    register_integration(path_of(Bare))(lambda model: {"n": 1})  # type: ignore[arg-type, return-value]
    with pytest.raises(ConfigurationError, match=r"Bare must return an Integration, got dict"):
        reasc(Bare())


def test_what_is_registered_and_fails_is_named() -> None:
    register_integration(path_of(Bare))(lambda model: Integration(max_top_logprobs=model.not_there))
    with pytest.raises(ConfigurationError, match=r"registered for .*Bare failed: AttributeError.*not_there"):
        reasc(Bare())


def plugin(folder: Path, *, name: str, value: str, code: str) -> None:
    """A package installed beside ours, which brings an entry point."""
    (folder / "reasc_plugin.py").write_text(code)
    (found := folder / "reasc_plugin-1.dist-info").mkdir()
    (found / "METADATA").write_text("Metadata-Version: 2.1\nName: reasc-plugin\nVersion: 1\n")
    (found / "entry_points.txt").write_text(f"[langchain_reasc.integrations]\n{name} = {value}\n")


CODE = """
from langchain_reasc.models.integrations import Integration

def describe(model):
    return Integration(logprobs="ranked", top_logprobs=None, max_top_logprobs=4)
"""


def test_a_package_brings_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin(tmp_path, name=path_of(Bare), value="reasc_plugin:describe", code=CODE)
    monkeypatch.syspath_prepend(tmp_path)
    registry._entry_points.cache_clear()
    model = Bare()
    assert reasc(model).invoke("q").response_metadata["reasc"]["answer"] == "42"
    assert {kwargs["ranked"] for kwargs in model.calls} == {4}
    sys.modules.pop("reasc_plugin")


def test_an_entry_point_that_does_not_load_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin(tmp_path, name=path_of(Bare), value="reasc_plugin:describe", code="import not_there_at_all")
    monkeypatch.syspath_prepend(tmp_path)
    registry._entry_points.cache_clear()
    with pytest.raises(ConfigurationError, match=r"'reasc_plugin:describe' of group .* does not load: .*not_there"):
        reasc(Bare())
    assert integration_of(saying("1")) == Integration(logprobs=None, n=None)  # others do not suffer from it


def test_an_unknown_class_with_openai_s_fields_is_asked_by_them() -> None:
    source = PreparedModel.of(Shaped(), logprobs=True)
    assert (source.model.logprobs, source.model.top_logprobs) == (True, 20)  # type: ignore[attr-defined]
    assert not source.kwargs


def test_an_unknown_class_that_passes_arguments_on_is_asked_by_them(runner: Any) -> None:
    model = Passing()
    with pytest.raises(LogprobsUnavailable):
        runner.solve(reasc(model), "q")
    assert model.calls[0] == {"logprobs": True, "top_logprobs": 20}


def test_any_other_unknown_class_is_left_alone_and_the_error_says_so(runner: Any) -> None:
    model = Bare()
    with pytest.raises(LogprobsUnavailable, match=r"no token logprobs.* Bare was not asked .*register_integration"):
        runner.solve(reasc(model), "q")
    result = runner.solve(reasc(model, on_missing_confidence="count"), "q")
    assert result.answer == "42"
    assert any("4 of 4 responses carry no confidence" in notice for notice in result.notices)
    assert model.calls == [{}] * len(model.calls)
