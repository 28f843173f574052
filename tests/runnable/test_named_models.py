"""Chat models by their names, wherever one is an option, and as the first argument without a keyword."""

import pickle
import sys
from typing import Any

import pytest
from langchain_core.runnables import ConfigurableField

from langchain_reasc import ChatReASC, ReASCRunnable, calibrate
from langchain_reasc.exceptions import ConfigurationError, MissingExtraError

from .chat_server import chat_server
from .fakes import Reply, saying

chat_models = pytest.importorskip("langchain.chat_models")
pytest.importorskip("langchain_openai")
pytest.importorskip("langchain_anthropic")

NAME, OTHER = "openai:gpt-test", "anthropic:claude-test"
FACES = [ReASCRunnable, ChatReASC]
pytestmark = pytest.mark.filterwarnings("ignore:The function `load` is in beta")


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"{provider}_API_KEY", "none")


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("by_position", [False, True], ids=["keyword", "position"])
def test_it_is_sampled(runner: Any, monkeypatch: pytest.MonkeyPatch, face: Any, by_position: bool) -> None:
    with chat_server(lambda question, index: Reply("it is 42")) as served:
        monkeypatch.setenv("OPENAI_BASE_URL", served.url)
        reasc = face(NAME, answer="auto") if by_position else face(model=NAME, answer="auto")
        message = runner.invoke(reasc, "q")
    assert message.response_metadata["reasc"]["answer"] == "42"
    assert {request["model"] for request in served.requests} == {"gpt-test"}


@pytest.mark.parametrize("face", FACES)
def test_a_model_may_be_the_first_argument(runner: Any, face: Any) -> None:
    reasc = face(saying("42"), answer="auto", max_samples=4)
    assert runner.account(reasc, "q")["answer"] == "42"
    with pytest.raises(TypeError, match="multiple values"):
        face(saying("42"), model=saying("43"))
    with pytest.raises(ConfigurationError, match="did you mean 'max_samples'"):
        face(saying("42"), max_sample=4)
    with pytest.raises(ConfigurationError, match="model"):
        face()


@pytest.mark.parametrize("face", FACES)
def test_the_name_is_kept_and_copies_share_what_was_made_of_it(face: Any) -> None:
    reasc = face(NAME, max_samples=5)
    copy = reasc.model_copy(update={"max_samples": 6})
    assert (reasc.model, copy.model, copy.max_samples) == (NAME, NAME, 6)
    assert copy.sampled is reasc.sampled
    again = pickle.loads(pickle.dumps(reasc))
    assert (again.model, again.max_samples, again.sampled.model_name) == (NAME, 5, "gpt-test")
    copy.model = OTHER
    assert (copy.model, copy.sampled.model) == (OTHER, "claude-test")
    assert reasc.model_copy(update={"model": OTHER}).sampled.model == "claude-test"


def test_a_chat_model_of_a_name_speaks_for_it_and_binds_its_tools() -> None:
    chat = ChatReASC(NAME)
    assert chat.model_name == "gpt-test"
    assert chat._get_ls_params()["ls_provider"] == "openai"
    bound: Any = chat.bind_tools([{"name": "look", "description": "Look.", "parameters": {"type": "object"}}])
    assert bound.kwargs["tools"][0]["function"]["name"] == "look"


@pytest.mark.parametrize("face", FACES)
def test_a_config_may_name_it(runner: Any, monkeypatch: pytest.MonkeyPatch, face: Any) -> None:
    reasc = face(saying("42"), answer="auto").configurable_fields(model=ConfigurableField(id="model"))
    with chat_server(lambda question, index: Reply("it is 7")) as served:
        monkeypatch.setenv("OPENAI_BASE_URL", served.url)
        assert runner.account(reasc, "q", {"configurable": {"model": NAME}})["answer"] == "7"
    assert runner.account(reasc, "q")["answer"] == "42"


@pytest.mark.parametrize("name", ["no-such-model", "nobody:gpt-test", "", " "])
def test_a_name_that_nobody_knows_is_refused(name: str) -> None:
    for face in FACES:
        with pytest.raises(ConfigurationError, match=r"'openai:gpt-4o-mini'"):
            face(name)


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ImportError, match="langchain-aws"):
        ChatReASC("bedrock:some-model")
    monkeypatch.setitem(sys.modules, "langchain.chat_models", None)
    with pytest.raises(MissingExtraError, match=r"langchain.*\[agents\]"):
        ReASCRunnable(OTHER)
    monkeypatch.setitem(sys.modules, "langchain_openai", None)
    with pytest.raises(MissingExtraError, match=r"langchain-openai.*\[openai\]"):
        ReASCRunnable(NAME)


def test_a_model_of_openai_needs_no_langchain(runner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain", None)
    monkeypatch.setitem(sys.modules, "langchain.chat_models", None)
    with chat_server(lambda question, index: Reply("it is 42")) as served:
        monkeypatch.setenv("OPENAI_BASE_URL", served.url)
        assert runner.account(ReASCRunnable(NAME), "q")["answer"] == "42"


@pytest.mark.full
def test_calibrating_takes_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with chat_server(lambda question, index: Reply("it is 7", -0.5 if question < "q5" else -2.0)) as served:
        monkeypatch.setenv("OPENAI_BASE_URL", served.url)
        made = calibrate(NAME, [(f"q{at}", "7" if at < 5 else "8") for at in range(10)])
    assert made.fingerprint.model == "gpt-test"
