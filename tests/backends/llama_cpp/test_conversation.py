"""Conversations as chat templates see them."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_reasc_llama_cpp import ChatLlamaCpp
from langchain_reasc_llama_cpp.prompts import ChatTemplate, template_messages
from langchain_reasc_llama_cpp.tools import openai_tools

from backends.llama_cpp.faces import Face
from backends.llama_cpp.tiny_gguf import CHATML
from backends.llama_cpp.tool_models import HERMES, LLAMA, NO_SYSTEM
from langchain_reasc.exceptions import ConfigurationError


def weather(city: str) -> str:
    """The weather."""
    return city


CALL = {"name": "weather", "args": {"city": "Pärnu"}, "id": "c1"}
TOOLS = openai_tools([weather])
ROUND: list[BaseMessage] = [
    SystemMessage("Be brief."),
    HumanMessage("Weather?"),
    AIMessage("Let me see.", tool_calls=[CALL]),
    ToolMessage("sunny", tool_call_id="c1"),
    AIMessage("Sunny."),
    HumanMessage("Thanks"),
]


def prompt(template: str, messages: list[BaseMessage], tools: Any = ()) -> str:
    return ChatTemplate(template, bos="<s>").render(template_messages(messages), tools)


def test_calls_and_results_are_passed_as_hugging_face_does() -> None:
    _, _, call, result, *_ = template_messages(ROUND)
    function = {"name": "weather", "arguments": {"city": "Pärnu"}}
    assert call == {
        "role": "assistant",
        "content": "Let me see.",
        "tool_calls": [{"type": "function", "id": "c1", "function": function}],
    }
    assert result == {"role": "tool", "content": "sunny", "tool_call_id": "c1"}


def test_a_hermes_template_shows_tools_itself() -> None:
    text = prompt(HERMES, ROUND, TOOLS)
    assert text.startswith("<|im_start|>system\nBe brief.\n\nCall functions")
    assert '"name": "weather"' in text
    assert '<tool_call>\n{"name": "weather", "arguments": {"city": "Pärnu"}}\n</tool_call><|im_end|>' in text
    assert "<|im_start|>user\n<tool_response>\nsunny\n</tool_response><|im_end|>" in text
    assert "weather" not in prompt(HERMES, ROUND[-1:])


def test_a_llama_template_shows_tools_itself() -> None:
    text = prompt(LLAMA, ROUND, TOOLS)
    assert '[assistant]{"name": "weather", "parameters": {"city": "Pärnu"}}\n[ipython]sunny\n' in text
    assert '    "name": "weather"' in text


@pytest.mark.parametrize("template", [CHATML, NO_SYSTEM], ids=["chatml", "no system"])
def test_a_template_without_tools_gets_them_in_words(template: str) -> None:
    messages = ROUND if template == CHATML else ROUND[1:]
    text = prompt(template, messages, TOOLS)
    first = "<|im_start|>system\nBe brief.\n\n# Tools" if template == CHATML else "[user]# Tools"
    assert text.startswith(first)
    assert '"name": "weather"' in text
    assert '<tool_call>\n{"name": "weather", "arguments": {"city": "Pärnu"}}\n</tool_call>' in text
    assert "<tool_response>\nsunny\n</tool_response>" in text
    assert "role" not in text
    assert "sunny" in prompt(template, messages)


def test_results_of_one_turn_come_together() -> None:
    calls = [{**CALL, "id": "a"}, {**CALL, "id": "b"}]
    results = [ToolMessage("one", tool_call_id="a"), ToolMessage("two", tool_call_id="b")]
    text = prompt(NO_SYSTEM, [HumanMessage("x"), AIMessage("", tool_calls=calls), *results])
    assert text.count("[user]") == 2
    assert text.index("one") < text.index("two")


def test_a_template_that_wants_arguments_as_text_gets_them() -> None:
    wants_text = HERMES.replace("{{ call.function.arguments | tojson }}", "{{ '' + call.function.arguments }}")
    assert '"arguments": {"city": "Pärnu"}}\n</tool_call>' in prompt(wants_text, ROUND, TOOLS)


def test_what_hugging_face_templates_use() -> None:
    source = (
        "{% generation %}{{ messages[0].content }}{% endgeneration %}{% for tool in tools %}{{ tool }}{% endfor %}"
        "{{ {'b': 'é', 'a': 1} | tojson(ensure_ascii=False, sort_keys=True) }}"
        "{% for i in [1, 2] %}{% break %}{% endfor %}{{ bos_token }}{{ strftime_now('%Y')[:2] }}"
    )
    assert prompt(source, [HumanMessage("hi")]) == 'hi{"a": 1, "b": "é"}<s>20'


def test_blocks_that_are_no_text() -> None:
    thought: list[Any] = [
        {"type": "reasoning", "reasoning": "hm"},
        {"type": "text", "text": "a"},
        {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Pärnu"}},
        "b",
    ]
    made = template_messages([AIMessage(thought, tool_calls=[CALL])])
    assert made[0]["content"] == "a\nb"
    assert len(made[0]["tool_calls"]) == 1


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([], "no messages"),
        ([HumanMessage([{"type": "image_url", "image_url": {"url": "x"}}])], "message 1 holds a block of type 'image"),
        ([ToolMessage("4", tool_call_id="c9")], "message 1 is the result of the tool call 'c9', but no message before"),
        ([HumanMessage("x"), RemoveMessage(id="1")], r"message 2 \(remove\) cannot be shown"),
    ],
)
def test_conversations_that_make_no_sense(
    tiny: ChatLlamaCpp, face: Face, messages: list[BaseMessage], says: str
) -> None:
    with pytest.raises(ConfigurationError, match=says):
        face.invoke(tiny, messages)
    with pytest.raises(ConfigurationError, match=says):
        face.sample(tiny, messages, n=1)


def test_a_role_the_template_leaves_out_is_not_lost_silently(tiny_path: Path, face: Face) -> None:
    chorus: list[BaseMessage] = [HumanMessage("hi"), ChatMessage("Woe!", role="chorus")]
    assert "Woe!" in prompt(CHATML, chorus)
    with (
        ChatLlamaCpp(model_path=tiny_path, chat_template=HERMES) as model,
        pytest.raises(ConfigurationError, match="leaves out message 2, with the role 'chorus'"),
    ):
        face.invoke(model, chorus)


def test_old_function_messages_are_results() -> None:
    assert template_messages([FunctionMessage(name="weather", content="sunny")])[0]["role"] == "tool"


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[0].content.frob() }}",
        "{{ messages[7].content }}",
        "{{ 1 + messages[0].content }}",
        "{{ nobody.knows }}",
    ],
)
@pytest.mark.parametrize("tools", [(), TOOLS], ids=["", "tools"])
def test_a_template_that_raises(template: str, tools: Any) -> None:
    with pytest.raises(ConfigurationError, match="the chat template refuses messages with the roles"):
        prompt(template, [HumanMessage("hi")], tools)
