"""Tool calling: a grammar makes even random models call tools rightly."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import gguf
import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_reasc_llama_cpp import ChatLlamaCpp
from langchain_reasc_llama_cpp.tools import ToolChoice

from backends.llama_cpp.conftest import REAL, real_options
from backends.llama_cpp.faces import Face, merged
from backends.llama_cpp.tiny_gguf import write_tiny_model
from backends.llama_cpp.tool_models import HERMES, HERMES_WORD, LLAMA, LLAMA_WORD, Weather
from langchain_reasc.exceptions import ConfigurationError

LIKELY = {"hermes": {259: 100.0}, "llama": {260: 100.0}}
PATTERN = {"type": "string", "pattern": "(?=y)"}
LOOKS_AROUND = {"name": "a", "description": "", "parameters": {"properties": {"x": PATTERN}, "type": "object"}}


@tool
def ping() -> str:
    """See whether anybody is there."""
    return "pong"


@pytest.fixture(scope="module", params=["hermes", "llama", "none", *REAL[1:]])
def model(request: pytest.FixtureRequest, tools_path: Path) -> Iterator[ChatLlamaCpp]:
    """A random model with a template that knows tools in one way or another, or not at all; and a real one."""
    if request.param == "smollm2":
        options = real_options(request)
    else:
        options = {"model_path": tools_path, "chat_template": {"hermes": HERMES, "llama": LLAMA}.get(request.param)}
    with ChatLlamaCpp(**{**options, "seed": 1, "max_tokens": 1000}) as made:
        yield made


def check(message: AIMessage, names: set[str], most: int = 8) -> None:
    assert message.content == ""
    assert message.invalid_tool_calls == []
    assert 1 <= len(message.tool_calls) <= most
    assert message.response_metadata["finish_reason"] == "tool_calls"
    assert len({call["id"] for call in message.tool_calls}) == len(message.tool_calls)
    for call in message.tool_calls:
        assert call["name"] in names
        if call["name"] == "Weather":
            Weather(**call["args"])
        else:
            assert call["args"] == {}


@pytest.mark.full
@pytest.mark.parametrize(("parallel", "most"), [({}, 8), ({"parallel_tool_calls": False}, 1)], ids=["several", "one"])
def test_a_model_that_must_call_does(model: ChatLlamaCpp, parallel: dict[str, bool], most: int) -> None:
    bound = model.bind_tools([Weather, ping], tool_choice="any", **parallel)
    for seed in range(2):
        check(bound.invoke("Will it rain?", seed=seed), {"Weather", "ping"}, most)


@pytest.mark.parametrize("choice", ["required", True])
def test_must_has_other_names(choice: Any) -> None:
    assert ToolChoice.from_call([Weather, ping], choice, None) == ToolChoice.from_call([Weather, ping], "any", None)
    assert ToolChoice.from_call([Weather, ping], "auto", None) == ToolChoice.from_call([Weather, ping], None, None)


@pytest.mark.parametrize("choice", ["Weather", {"type": "function", "function": {"name": "Weather"}}])
def test_a_model_that_must_call_one_tool_calls_it_once(model: ChatLlamaCpp, choice: Any) -> None:
    bound = model.bind_tools([ping, Weather], tool_choice=choice)
    check(bound.invoke("Will it rain?"), {"Weather"}, most=1)


def test_calls_are_streamed(model: ChatLlamaCpp, face: Face) -> None:
    bound = model.bind_tools([Weather], tool_choice="any", parallel_tool_calls=False)
    whole = face.invoke(bound, "Will it rain?")
    chunks = face.stream(bound, "Will it rain?")
    total = merged(chunks)
    check(total, {"Weather"})
    assert total.tool_calls[0]["args"] == whole.tool_calls[0]["args"]
    pieces = [piece for chunk in chunks for piece in chunk.tool_call_chunks]
    assert pieces[0]["name"] == "Weather"
    assert pieces[0]["id"] == total.tool_calls[0]["id"]
    assert len(pieces) > 5
    assert all(piece["name"] is None and piece["id"] is None and piece["index"] == 0 for piece in pieces[1:])


def test_samples_carry_calls(model: ChatLlamaCpp) -> None:
    samples = list(model.sample("Will it rain?", n=3, tools=[Weather], tool_choice="Weather"))
    assert len(samples) == 3
    for _, message in samples:
        check(message, {"Weather"}, most=1)


@pytest.mark.parametrize("template", ["hermes", "llama"])
def test_a_call_once_begun_is_valid(tools_path: Path, template: str) -> None:
    chosen = {"hermes": HERMES, "llama": LLAMA}[template]
    with ChatLlamaCpp(
        model_path=tools_path, chat_template=chosen, max_tokens=1000, logit_bias=LIKELY[template]
    ) as model:
        message = model.bind_tools([Weather], parallel_tool_calls=False).invoke("Will it rain?")
        check(message, {"Weather"}, most=1)
        # Without tools the same text is just text.
        assert (HERMES_WORD if template == "hermes" else LLAMA_WORD) in model.invoke("hi", max_tokens=9).text


def test_marks_that_are_control_tokens_are_seen(tmp_path: Path) -> None:
    words = ["<tool_call>", "</tool_call>"]
    path = write_tiny_model(
        tmp_path / "control.gguf", words=words, word_kind=gguf.TokenType.CONTROL, context=4096, ends=False
    )
    with ChatLlamaCpp(model_path=path, chat_template=HERMES, max_tokens=1000, logit_bias={259: 100.0}) as model:
        bound = model.bind_tools([Weather], parallel_tool_calls=False)
        check(bound.invoke("Will it rain?"), {"Weather"}, most=1)
        check(merged(bound.stream("Will it rain?")), {"Weather"}, most=1)


def test_a_model_that_may_call_need_not(hermes: ChatLlamaCpp) -> None:
    bound = hermes.bind_tools([Weather])
    message = bound.invoke("Will it rain?", max_tokens=20)
    assert message.tool_calls == []
    assert message.text == merged(bound.stream("Will it rain?", max_tokens=20)).text != ""
    assert message.response_metadata["finish_reason"] == "length"


def test_a_call_that_is_cut_off_is_invalid(hermes: ChatLlamaCpp) -> None:
    bound = hermes.bind_tools([Weather], tool_choice="Weather", max_tokens=60, logit_bias={ord("x") - 33: 5.0})
    whole = len(bound.invoke("Will it rain?").response_metadata["token_signals"]["token_logprob"])
    for limit in range(5, whole - 15, 7):
        message = bound.bind(max_tokens=limit).invoke("Will it rain?")
        streamed = merged(bound.bind(max_tokens=limit).stream("Will it rain?"))
        assert message.tool_calls == streamed.tool_calls == []
        assert message.response_metadata["finish_reason"] == streamed.response_metadata["finish_reason"] == "length"
        if limit > len("<tool_call>"):
            [broken] = message.invalid_tool_calls
            assert broken["error"]
            assert len(streamed.invalid_tool_calls) == 1


def test_tools_are_shown_unless_none_may_be_called(model: ChatLlamaCpp) -> None:
    messages = [SystemMessage("Be kind."), HumanMessage("Hi")]
    with_tools = model.get_num_tokens_from_messages(messages, tools=[Weather, ping])
    without = model.get_num_tokens_from_messages(messages)
    assert with_tools > without + 100
    usage = cast(Any, model.bind_tools([Weather, ping]).invoke(messages, max_tokens=1).usage_metadata)
    assert usage["input_tokens"] == with_tools
    usage = cast(Any, model.bind_tools([Weather], tool_choice="none").invoke(messages, max_tokens=1).usage_metadata)
    assert usage["input_tokens"] == without
    assert model.bind_tools([]).invoke(messages, max_tokens=1).tool_calls == []


def test_an_agent_goes_round(model: ChatLlamaCpp) -> None:
    bound = model.bind_tools([ping], tool_choice="ping")
    messages: list[Any] = [HumanMessage("Is anybody there?")]
    for _ in range(2):
        answer = bound.invoke(messages)
        results = [ping.invoke(call) for call in answer.tool_calls]
        assert [result.content for result in results] == ["pong"]
        messages += [answer, *results]
    assert model.invoke(messages, max_tokens=5).text
    assert bound.invoke(messages, max_tokens=300).tool_calls


@pytest.mark.parametrize(
    ("tools", "options", "says"),
    [
        ([Weather], {"tool_choice": "Wether"}, "did you mean 'Weather'"),
        ([Weather], {"tool_choice": "zzz"}, "auto, any, none, Weather"),
        ([Weather], {"tool_choice": {"name": 3}}, "names no tool"),
        ([Weather], {"tool_choice": 3}, "got 3"),
        ([], {"tool_choice": "any"}, "needs tools"),
        ([3], {}, r"tool 1 \(3\)"),
        ([{"name": "a b", "description": "", "parameters": {}}], {}, "called 'a b'"),
        ([LOOKS_AROUND], {}, "tool 'a': .*arguments.*look-around"),
    ],
)
def test_wrong_tools_are_refused(hermes: ChatLlamaCpp, tools: list[Any], options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        hermes.bind_tools(tools, **options)
    with pytest.raises(ConfigurationError, match=says):
        hermes.invoke("hi", tools=tools, **options)


def test_two_tools_of_one_name_are_refused(hermes: ChatLlamaCpp) -> None:
    bound = hermes.bind_tools([Weather, Weather])  # LangChain's own tests bind such
    with pytest.raises(ConfigurationError, match=r"two tools .*'Weather'"):
        bound.invoke("hi")
