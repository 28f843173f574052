"""Streams that are not quite OpenAI's: what can be used is read, the rest is skipped or named."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, message_chunk_to_message
from langchain_reasc_openai.events import merged
from pydantic import BaseModel
from servers.chat_wire import PROMPT_TOKENS, Chat
from servers.exchange import Exchange
from servers.odd_calls import ODD_CALLS

from backends.openai.loopback import Face, pool_of, serving
from langchain_reasc.exceptions import SamplingError
from langchain_reasc.models import FailedSample

TEXT = "the answer is 41."
CHAT = Chat(("the", " answer", " is", " 41."))
NO_USAGE = None
USAGES: dict[str, Any] = {
    "in strings": {"prompt_tokens": "7", "completion_tokens": "4", "total_tokens": "11"},
    "in fractions": {"prompt_tokens": 7.5, "completion_tokens": 4.5, "total_tokens": 12.0},
    "a list": [7, 4, 11],
    "negative": {"prompt_tokens": -7, "completion_tokens": -4, "total_tokens": -11},
    "a number": 11,
}
Events = list[Any]


def with_usage(usage: Any) -> Callable[[Events], Events]:
    return lambda events: [event | {"usage": usage} if event.get("usage") else event for event in events]


def between(*odd: Any) -> Callable[[Events], Events]:
    return lambda events: [one for event in events for one in (*odd, event)]


def choice(**fields: Any) -> Any:
    return CHAT.chunk(choices=[{"index": 0, "delta": {"content": " wrong"}, "finish_reason": None, **fields}])


STREAMS: dict[str, Callable[[Events], Events]] = {
    "events that are null": between(None, 5, "so", []),
    "choices that are not objects": between(CHAT.chunk(choices=[None]), CHAT.chunk(choices=["so"])),
    "choices that are not a list": between(CHAT.chunk(choices=None), CHAT.chunk(choices=3), CHAT.chunk(choices={})),
    "choices that nobody asked for": between(choice(index=5), choice(index=-1), choice(index="0"), choice(index=True)),
    "deltas of null": between(choice(delta=None)),
    "a role that is not the assistant's": between(choice(delta={"role": "user", "content": ""})),
    "no index": lambda events: [
        event | {"choices": [{**one, "index": None} for one in event["choices"]]} for event in events
    ],
    "no finish reason": lambda events: [event for event in events if event["choices"][:1] != [END]],
    **{f"a usage {name}": with_usage(usage) for name, usage in USAGES.items()},
    "details of a usage in words": lambda events: [
        event | {"usage": {**event["usage"], "prompt_tokens_details": {"cached_tokens": "few"}}}
        if event.get("usage")
        else event
        for event in events
    ],
}
END = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}


async def send(exchange: Exchange, written: str) -> None:
    await exchange.begin_stream()
    for at in range(0, len(written), 97):  # which ends in the middle of an event, and of an end of line
        await exchange.write(written[at : at + 97])
    await exchange.end_stream()


def written(events: Events) -> str:
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"


@pytest.mark.parametrize("name", STREAMS)
def test_what_cannot_be_used_is_skipped(name: str, face: Face) -> None:
    async def answer(exchange: Exchange) -> None:
        await send(exchange, written(STREAMS[name]([*CHAT.events(exchange.body)])))

    with serving(answer) as url, pool_of(url) as model:
        [(_, message)] = face.sample(model, n=1)
        streamed = face.stream(model)
    assert isinstance(message, AIMessage), message
    assert message.text == "".join(chunk.text for chunk in streamed) == TEXT
    assert [one["token"] for one in message.response_metadata["logprobs"]["content"]] == [*CHAT.words]
    assert message.response_metadata["finish_reason"] == "stop"
    if name.startswith("a usage"):
        assert message.usage_metadata is None
    else:
        assert message.usage_metadata is not None
        counts = message.usage_metadata["input_tokens"], message.usage_metadata["output_tokens"]
        assert counts == (PROMPT_TOKENS, 4)


FORMS: dict[str, Callable[[str], str]] = {
    "a byte-order mark": lambda text: "\ufeff" + text,
    "carriage returns": lambda text: text.replace("\n", "\r"),
    "carriage returns and line feeds": lambda text: text.replace("\n", "\r\n"),
    "comments, ids and names": lambda text: text.replace("data:", ": so\nevent: message\nid: 4\nretry: 5\ndata:"),
    "no space": lambda text: text.replace("data: ", "data:"),
    "events over several lines": lambda text: text.replace(', "choices"', '\ndata: , "choices"'),
    "empty events": lambda text: text.replace("data:", "data:\n\ndata:"),
    "no end of line at the end": lambda text: text.removesuffix("\n\n"),
    "no end mark": lambda text: text.removesuffix("data: [DONE]\n\n"),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_stream_is_read_in_all_its_forms(name: str, face: Face) -> None:
    async def answer(exchange: Exchange) -> None:
        await send(exchange, FORMS[name](written([*CHAT.events(exchange.body)])))

    with serving(answer) as url, pool_of(url) as model:
        [(_, message)] = face.sample(model, n=1)
        streamed = face.stream(model)
    assert isinstance(message, AIMessage), message
    assert message.text == "".join(chunk.text for chunk in streamed) == TEXT
    assert message.usage_metadata is not None and message.usage_metadata["output_tokens"] == 4


@pytest.mark.parametrize(
    "delta",
    [
        {"content": 41},
        {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "pay", "arguments": 41}}]},
        {"tool_calls": ["pay"]},
        "41",
    ],
    ids=str,
)
def test_what_would_change_the_answer_is_named_and_what_came_before_is_kept(delta: Any, face: Face) -> None:
    async def answer(exchange: Exchange) -> None:
        events = [*CHAT.events(exchange.body)]
        await send(exchange, written([*events[:3], choice(delta=delta), *events[4:]]))

    with serving(answer) as url, pool_of(url, max_retries=0) as model:
        [(_, failed)] = face.sample(model, n=1)
    assert isinstance(failed, FailedSample) and isinstance(failed.error, SamplingError)
    types = {name: type(value).__name__ for name, value in delta.items()} if isinstance(delta, dict) else "str"
    assert "delta" in str(failed.error) and str(types) in str(failed.error)
    assert failed.message is not None and failed.message.text == "the answer is"
    assert failed.message.response_metadata["received_tokens"] == 3


def thought(text: str) -> Any:
    return [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]


CONTENTS: dict[str, list[Any]] = {
    "thoughts, then text": ["", thought("hm"), thought(" so"), "the answer", " is 41."],
    "text, then thoughts": ["the answer", " is 41.", thought("hm")],
    "text between thoughts": [thought("hm"), "the answer", thought("so"), " is 41.", ""],
    "text in blocks, too": [thought("hm"), [{"type": "text", "text": "the answer"}], " is 41."],
    "thoughts between texts": ["the answer", thought("hm"), " is 41."],
}


def words_in(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return words_in(content.get("thinking") or content.get("text"))
    return "".join(map(words_in, content))


@pytest.mark.parametrize("case", CONTENTS)
def test_thoughts_and_text_stay_in_order(case: str, face: Face) -> None:
    deltas = [{"content": content} for content in CONTENTS[case]]
    events = [*(choice(delta=delta) for delta in deltas), choice(delta={}, finish_reason="stop")]

    async def answer(exchange: Exchange) -> None:
        await send(exchange, written(events))

    with serving(answer) as url, pool_of(url) as model:
        [(_, message)] = face.sample(model, n=1)
        first, *others = face.stream(model)
    assert isinstance(message, AIMessage), message
    reply = merged(events)["choices"][0]["message"]
    for content in (message.content, sum(others, first).content, reply["content"]):
        assert words_in(content) == words_in(CONTENTS[case])
    assert message.text == "the answer is 41."


class Pay(BaseModel):
    """Pays."""

    amount: int


def test_a_whole_reply_and_a_stream_are_one_message(face: Face) -> None:
    """Calls come in pieces of several forms, beside a refusal and log-probabilities."""
    function = {"name": "Pay", "arguments": ""}
    pieces: list[Any] = [
        {"role": "assistant", "content": None, "tool_calls": [{"index": 0, "id": "a", "function": function}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"amount'}}]},
        {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "Pay", "arguments": '": 41}'}}]},
        {"tool_calls": [{"index": 1, "id": "b", "function": {"name": "Pay", "arguments": {"amount": 2}}}]},
        {"tool_calls": [{"index": 2, "id": "c", "function": {"name": "Pay", "arguments": '{"amount'}}]},
        {"refusal": "I will"},
        {"refusal": " not."},
    ]

    async def streams(exchange: Exchange) -> None:
        events = [choice(delta=delta) for delta in pieces]
        await send(exchange, written([*events, choice(delta={}, finish_reason="tool_calls")]))

    async def replies(exchange: Exchange) -> None:
        arguments = ('{"amount": 41}', '{"amount": 2}', '{"amount')
        calls = [
            {"id": id, "type": "function", "function": {"name": "Pay", "arguments": text}}
            for id, text in zip("abc", arguments, strict=True)
        ]
        message = {"role": "assistant", "content": None, "refusal": "I will not.", "tool_calls": calls}
        whole = {"index": 0, "message": message, "logprobs": None, "finish_reason": "tool_calls"}
        await exchange.reply(200, CHAT.document("chat.completion", choices=[whole]))

    said = []
    for answer in (streams, replies):
        with serving(answer) as url, pool_of(url) as model:
            [(_, message)] = face.sample(model, n=1)
        assert isinstance(message, AIMessage), message
        said.append((message.tool_calls, message.invalid_tool_calls, message.additional_kwargs, message.text))
        assert message.response_metadata["finish_reason"] == "tool_calls"
    assert said[0] == said[1]
    assert [call["args"] for call in message.tool_calls] == [{"amount": 41}, {"amount": 2}]
    assert [call["id"] for call in message.invalid_tool_calls] == ["c"]
    assert message.additional_kwargs["refusal"] == "I will not."


@pytest.mark.parametrize("case", ODD_CALLS)
def test_odd_calls_are_read_for_what_they_mean(case: str, face: Face) -> None:
    odd = ODD_CALLS[case]

    async def answer(exchange: Exchange) -> None:
        events = [choice(delta={"tool_calls": [piece.delta()]}) for piece in odd.pieces]
        await send(exchange, written([*events, choice(delta={}, finish_reason=odd.finish)]))

    with serving(answer) as url, pool_of(url) as model:
        [(_, message)] = face.sample(model, n=1)
        first, *others = face.stream(model)
    assert isinstance(message, AIMessage), message
    chunks = message_chunk_to_message(sum(others, first))
    assert isinstance(chunks, AIMessage)
    for calls in (message.tool_calls, chunks.tool_calls if odd.finish != "length" else []):
        assert [(call["name"], call["args"]) for call in calls] == [*(odd.calls or ())]
    assert all(call["name"] for call in (*message.invalid_tool_calls, *chunks.invalid_tool_calls))
