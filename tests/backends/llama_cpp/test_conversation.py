"""Conversations as chat templates see them, and what becomes of those that are longer than the context."""

import json
from pathlib import Path
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment
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
from langchain_core.messages.tool import invalid_tool_call
from langchain_reasc_llama_cpp import ChatLlamaCpp
from langchain_reasc_llama_cpp.prompts import ChatTemplate, newest_turns, template_messages
from langchain_reasc_llama_cpp.tools import openai_tools

from backends.llama_cpp.faces import Face, input_tokens, output_tokens
from backends.llama_cpp.tiny_gguf import CHATML, write_tiny_model
from backends.llama_cpp.tool_models import HERMES, LLAMA, NO_SYSTEM
from langchain_reasc.exceptions import ConfigurationError, ContextOverflowError

ADDS_BOS = {"tokenizer.ggml.add_bos_token": True}


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


TEMPLATES = {
    "hermes": HERMES,
    "llama": LLAMA,
    "chatml": CHATML,
    "no system": NO_SYSTEM,
    "arguments as text": HERMES.replace("{{ call.function.arguments | tojson }}", "{{ '' + call.function.arguments }}"),
    "arguments one by one": HERMES.replace(
        "{{ call.function.arguments | tojson }}",
        "{% for name, value in call.function.arguments.items() %}{{ name }}={{ value | tojson }}{% endfor %}",
    ),
}


@pytest.mark.parametrize("arguments", ['{"euros": ', "no JSON", "[1]", "5", "", None])
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_model_sees_invalid_calls_too(template: str, arguments: str | None) -> None:
    bad = invalid_tool_call(name="weather", args=arguments, id="c1", error="not JSON")
    messages = [HumanMessage("Weather?"), AIMessage("", invalid_tool_calls=[bad]), ToolMessage("no", tool_call_id="c1")]
    text = prompt(TEMPLATES[template], messages, TOOLS)
    called = text[text.index("Weather?") :]
    assert "weather" in called and json.dumps(arguments or "") in called.replace('\\\\"', '\\"')


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
        ([HumanMessage([{"type": "image_url", "image_url": {"url": "x"}}])], "message 1 .*'image"),
        ([ToolMessage("4", tool_call_id="c9")], "'c9'"),
        ([HumanMessage("x"), RemoveMessage(id="1")], r"message 2 \(remove\)"),
    ],
)
def test_conversations_that_make_no_sense(tiny: ChatLlamaCpp, messages: list[BaseMessage], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        tiny.invoke(messages)


def test_a_role_the_template_leaves_out_is_not_lost_silently() -> None:
    chorus: list[BaseMessage] = [HumanMessage("hi"), ChatMessage("Woe!", role="chorus")]
    assert "Woe!" in prompt(CHATML, chorus)
    with pytest.raises(ConfigurationError, match=r"message 2.*'chorus'"):
        prompt(HERMES, chorus)


EACH = "{% for m in messages %}["
PARTS = {
    "a loop": EACH + "{{ m.role }}]{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}",
    "types": EACH
    + "{{ m.role }}]{% for part in m.content %}{% if part['type'] == 'text' %}{{ part['text'] | trim }}{% endif %}"
    "{% endfor %}{% endfor %}",
    "the first": EACH + "{{ m['role'] }}]{{ m['content'][0]['text'] }}{% endfor %}",
}
TWO_ROLES = EACH + "{{ m.role }}]{% if m.role in ('user', 'assistant') %}{{ m.content }}{% endif %}{% endfor %}"


@pytest.mark.parametrize("template", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("text", ["a", "What is the capital of Estonia?"])
def test_a_template_that_reads_parts_gets_parts(template: str, text: str) -> None:
    messages = [SystemMessage("S"), HumanMessage(text), AIMessage("A"), HumanMessage("and?")]
    assert prompt(template, messages) == f"[system]S[user]{text}[assistant]A[user]and?"


@pytest.mark.parametrize("text", ["B", "Answer in one word, and in Estonian."])
@pytest.mark.parametrize("template", [TWO_ROLES, TWO_ROLES.replace("{{ m.content }}", "{{ m.content[0].text }}")])
def test_a_system_message_that_is_left_out_goes_before_the_next_user_message(template: str, text: str) -> None:
    system = SystemMessage(text)
    rest: list[BaseMessage] = [AIMessage("A"), SystemMessage("C"), HumanMessage("and?")]
    expected = f"[user]{text}\n\nhi[assistant]A[user]C\n\nand?"
    assert prompt(template, [system, HumanMessage("hi"), *rest]) == expected
    with_tools = prompt(template, [system, HumanMessage("hi")], TOOLS)
    assert with_tools.startswith(f"[user]{text}\n\n# Tools") and with_tools.endswith("\n\nhi")


def test_a_message_that_says_the_same_as_another_is_missed_too() -> None:
    text = "Answer in one word, and in Estonian."
    assert prompt(TWO_ROLES, [SystemMessage(text), HumanMessage(text)]) == f"[user]{text}\n\n{text}"


@pytest.mark.parametrize(
    ("template", "messages", "says"),
    [
        ("Answer: ", [HumanMessage("hi")], "message 1.*'user'"),
        (TWO_ROLES, [HumanMessage("hi"), SystemMessage("S")], "message 2.*'system'"),
        ("{{ messages[-1].content }}", [HumanMessage("a"), AIMessage("b"), HumanMessage("c")], "message 1.*'user'"),
        (
            EACH + "{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}",
            ROUND[:2] + ROUND[-2:],
            "'assistant'",
        ),
        (EACH + "{{ m.content[:4] }}{% endfor %}", [HumanMessage("a question")], "message 1.*'user'"),
    ],
)
def test_a_message_the_template_leaves_out_is_refused(
    tmp_path: Path, face: Face, template: str, messages: list[BaseMessage], says: str
) -> None:
    path = write_tiny_model(tmp_path / "forgetful.gguf", chat_template=template)
    with (
        ChatLlamaCpp(model_path=path, max_tokens=1) as model,
        pytest.raises(ConfigurationError, match=rf"forgetful\.gguf.*{says}"),
    ):
        face.invoke(model, messages)


@pytest.mark.parametrize(
    "shown",
    [
        "{{ m.content | trim }}",
        "{{ m.content.split('</think>')[-1].lstrip() }}",
        "{{ m.content | tojson }}",
        "{{ m.content | upper }}",
        "{% if m.content is string %}{{ m.content }}{% else %}{{ m.content[0].text }}{% endif %}",
    ],
)
def test_what_a_template_shows_in_another_form_is_not_left_out(shown: str) -> None:
    template = EACH + "{{ m.role }}]" + shown + "{% endfor %}"
    messages: list[BaseMessage] = [
        *(SystemMessage(' "Be\tbrief." '), HumanMessage("hi\n")),
        *(AIMessage("<think>Let me think about this.</think> so"), HumanMessage("and?")),
    ]
    environment = ImmutableSandboxedEnvironment()
    environment.filters["tojson"] = json.dumps
    given = template_messages(messages)
    expected = environment.from_string(template).render(messages=given)
    assert prompt(template, messages) == expected


def test_old_function_messages_are_results() -> None:
    assert template_messages([FunctionMessage(name="weather", content="sunny")])[0]["role"] == "tool"


def test_a_begin_of_sequence_token_comes_once(tiny_path: Path) -> None:
    options = {"model_path": tiny_path, "chat_template": "{{ bos_token + messages[0].content }}"}
    with ChatLlamaCpp(**options) as model, ChatLlamaCpp(**options, kv_overrides=ADDS_BOS) as adding:
        assert model.prompt_tokens("a") == adding.prompt_tokens("a") == [257, ord("a")]


def test_an_empty_prompt(tiny_path: Path) -> None:
    with (
        ChatLlamaCpp(model_path=tiny_path, chat_template="{{ '' }}") as model,
        pytest.raises(ConfigurationError, match="empty prompt"),
    ):
        model.invoke("")


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[0].content.frob() }}",
        "{{ 1 + messages[0].content }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",  # it cannot reach out of its sandbox
        "{{ nobody.knows }}",
        HERMES + "{{ nobody.knows }}",
    ],
)
@pytest.mark.parametrize("tools", [(), TOOLS], ids=["", "tools"])
def test_a_template_that_raises(template: str, tools: Any) -> None:
    with pytest.raises(ConfigurationError, match="chat template"):
        prompt(template, [HumanMessage("hi")], tools)


# Conversations longer than the context: an error, or the oldest turns go.


def turn(number: int, *, tool: bool = False) -> list[BaseMessage]:
    if not tool:
        return [HumanMessage(f"question {number}"), AIMessage(f"answer {number}")]
    call = {"name": "ping", "args": {}, "id": f"c{number}"}
    result = ToolMessage(f"result {number}", tool_call_id=f"c{number}")
    return [HumanMessage(f"question {number}"), AIMessage("", tool_calls=[call]), result, AIMessage("so")]


SYSTEM = SystemMessage("Be brief.")
TALK = [SYSTEM, *turn(1), *turn(2, tool=True), *turn(3), *turn(4, tool=True), HumanMessage("newest")]


@pytest.mark.parametrize("room", [1, 2, 5, 6, 8, 12])
def test_only_whole_turns_go(room: int) -> None:
    kept = newest_turns(TALK, lambda messages: len(messages) <= room)
    sizes = [size for size in (2, 6, 8, 12) if size <= room]  # the newest turn, the newest two, ...
    if not sizes:
        assert kept is None
        return
    assert kept == [SYSTEM, *TALK[1 - sizes[-1] :]]
    assert isinstance(kept[1], HumanMessage)


def test_nothing_to_keep_without_a_human_message() -> None:
    assert newest_turns([SYSTEM, AIMessage("x")], lambda messages: True) is None


def test_the_oldest_turns_go(endless_path: Path) -> None:
    with ChatLlamaCpp(model_path=endless_path, n_ctx=400, on_overflow="truncate", signals=()) as model:
        assert model.get_num_tokens_from_messages(TALK) > 400
        message = model.invoke(TALK, max_tokens=60)
        dropped = message.response_metadata["dropped_messages"]
        kept = [SYSTEM, *TALK[dropped + 1 :]]
        assert isinstance(kept[1], HumanMessage)
        assert input_tokens(message) == model.get_num_tokens_from_messages(kept) <= 340
        assert output_tokens(message) == 60
        chunks = [chunk for chunk in model.stream(TALK, max_tokens=60) if chunk.response_metadata]
        [(_, sample)] = model.sample(TALK, n=1, max_tokens=60)
        assert [each.response_metadata["dropped_messages"] for each in (*chunks, sample)] == [dropped, dropped]
        # Where the response needs more room, more of them go; but a quarter of the context is all it is kept.
        longer = model.invoke(TALK, max_tokens=1000)
        assert longer.response_metadata["dropped_messages"] >= dropped
        assert input_tokens(longer) <= 300
        assert "dropped_messages" not in model.invoke("hi", max_tokens=2).response_metadata


def test_the_newest_turn_must_fit(endless_path: Path) -> None:
    long = [*TALK[:-1], HumanMessage("x" * 330)]
    with ChatLlamaCpp(model_path=endless_path, n_ctx=400, on_overflow="truncate", signals=()) as model:
        message = model.invoke(long)
        assert message.response_metadata["dropped_messages"] == len(TALK) - 2
        assert input_tokens(message) + output_tokens(message) == 400
        assert message.response_metadata["finish_reason"] == "length"
        with pytest.raises(ContextOverflowError, match="400"):
            model.invoke([*long, AIMessage("y"), HumanMessage("x" * 400)])


def test_by_default_nothing_goes(endless_path: Path) -> None:
    with ChatLlamaCpp(model_path=endless_path, n_ctx=400) as model:
        whole = model.get_num_tokens_from_messages(TALK)
        with pytest.raises(ContextOverflowError, match=f"{whole} tokens.*400"):
            model.invoke(TALK)
        assert model.invoke(TALK, on_overflow="truncate", max_tokens=2).response_metadata["dropped_messages"]
        with pytest.raises(ConfigurationError, match=r"on_overflow: .*'drop'"):
            model.invoke(TALK, on_overflow="drop")
