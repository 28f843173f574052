"""Which tokens hold a response's tool calls, in the texts that models and servers give."""

import json
from typing import Any

import numpy as np
import pytest
from langchain_core.messages import AIMessage

from langchain_reasc.models.logprobs import read_signals
from langchain_reasc.models.logprobs.deciding import deciding_tokens, spelled_by

PARIS = {"name": "weather", "args": {"city": "Paris", "days": 3}}
PLAIN = '{"name": "weather", "arguments": {"city": "Paris", "days": 3}}'


def held(text: str, *calls: dict[str, Any], size: int = 1) -> list[str] | None:
    """The runs of tokens that decide, where each token is so many bytes."""
    raw = text.encode()
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
    mask = deciding_tokens(pieces, calls)
    if mask is None:
        return None
    assert mask.shape == (len(pieces),)
    shown = b"".join(piece if kept else b"\0" * len(piece) for piece, kept in zip(pieces, mask, strict=True))
    return [run for run in shown.decode(errors="replace").split("\0") if run]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("<tool_call>\n", "\n</tool_call>"),
        ("I look up the weather in Paris for 3 days. [TOOL_CALLS] [", "]"),
        ('<think>Shall I call {"name": "weather", "arguments": {"city": "Paris", "days": 3}}?</think>', "<|im_end|>"),
    ],
)
def test_name_and_arguments_of_the_call_itself(before: str, after: str) -> None:
    text = before + PLAIN + after
    assert held(text, PARIS) == ["weather", '{"city": "Paris", "days": 3}']
    mask = deciding_tokens([bytes([byte]) for byte in text.encode()], [PARIS])
    assert mask is not None
    assert np.flatnonzero(mask)[0] > len(before.encode()), "what was drafted in the reasoning decides nothing"


@pytest.mark.parametrize(
    "arguments",
    ['{\n    "city": "Paris",\n    "days": 3\n}', '{"days":3,"city":"Paris"}', r'{"city": "\u0050aris", "days": 3}'],
    ids=["pretty-printed", "in another order", "escaped"],
)
def test_arguments_may_be_spelled_in_any_json(arguments: str) -> None:
    assert held(f'{{"name": "weather", "parameters": {arguments}}}', PARIS) == ["weather", arguments]


@pytest.mark.parametrize(
    "text",
    [
        "functions.weather:0<|tool_call_argument_begin|>%s<|tool_call_end|>",
        "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>%s",
        "[TOOL_CALLS]weather[ARGS]%s",
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n%s\n```<｜tool▁call▁end｜>",
    ],
    ids=["Kimi", "Harmony", "Mistral", "DeepSeek"],
)
def test_formats_with_json_arguments(text: str) -> None:
    arguments = json.dumps(PARIS["args"])
    assert held(text % arguments, PARIS) == ["weather", arguments]


@pytest.mark.parametrize(
    "text",
    [
        'weather(city="Paris", days=3)',
        "<function=weather><parameter=city>Paris</parameter><parameter=days>3</parameter></function>",
        r'{"name": "weather", "arguments": "{\"city\": \"Paris\", \"days\": 3}"}',
        '{"name": "weather", "arguments": {"city": "Paris", "days": "3"}}',
        '{"name": "weather", "arguments": {"city": "Paris", "days": true}}',
        '{"name": "weathers", "arguments": {"city": "Paris", "days": 3}}',
        '{"name": "weather", "arguments": {"city": "Paris", "days": 3',
        "weather" + " then" * 20 + '{"city": "Paris", "days": 3}',
        "It is sunny in Paris.",
        "",
    ],
)
def test_what_cannot_be_told_is_left_whole(text: str) -> None:
    assert held(text, PARIS) is None


def test_several_calls() -> None:
    rome = {"name": "weather", "args": {"city": "Rome", "days": 3}}
    both = f"<tool_call>{PLAIN}</tool_call><tool_call>{PLAIN.replace('Paris', 'Rome')}</tool_call>"
    arguments = ('{"city": "Paris", "days": 3}', '{"city": "Rome", "days": 3}')
    assert held(both, PARIS, rome) == ["weather", arguments[0], "weather", arguments[1]]
    assert held(both, PARIS, PARIS) is None, "one of them is not there"
    assert held(both, rome, PARIS) is None, "they were written in another order"
    assert held(both) is None, "nothing was called"
    twice = PLAIN + PLAIN
    assert len(held(twice, PARIS, PARIS) or []) == 4


def test_calls_without_arguments_and_nested_ones() -> None:
    assert held('<tool_call>{"name": "ping", "arguments": {}}', {"name": "ping", "args": {}}) == ["ping", "{}"]
    nested = {"name": "plot", "args": {"at": {"x": {}, "y": [1, {"z": None}]}, "on": True}}
    text = json.dumps({"name": "plot", "arguments": nested["args"]})
    assert held(text, nested) == ["plot", json.dumps(nested["args"])]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_tokens_are_bytes(size: int) -> None:
    call = {"name": "weather", "args": {"city": "Zürich 🌦", "days": 3}}
    text = "Grüße: " + json.dumps({"name": "weather", "arguments": call["args"]}, ensure_ascii=False) + " ✓"
    name, arguments = held(text, call, size=size) or ["", ""]
    assert "weather" in name
    assert json.dumps(call["args"], ensure_ascii=False) in arguments
    assert len((name + arguments).encode()) < len(text.encode()) - 10


def test_bytes_that_are_no_text_do_no_harm() -> None:
    mask = deciding_tokens([b"\xff\xfe", *(bytes([byte]) for byte in PLAIN.encode()), b"\xf0\x9f"], [PARIS])
    assert mask is not None
    assert mask.sum() == len("weather") + len(json.dumps(PARIS["args"]))
    assert not mask[0] and not mask[-1]


@pytest.mark.parametrize("text", ["{" * 20_000 + PLAIN, "weather{" * 5000, '{"weather": ' * 3000 + "{}"])
def test_odd_texts_take_no_time(text: str) -> None:
    held(text, PARIS)


# A response's signals ------------------------------------------------------------------------------------------------


def openai_shape(pieces: list[bytes], *, texts: bool = True, odd: int | None = None) -> dict[str, Any]:
    content = [{"token": piece.decode(errors="replace"), "bytes": list(piece)} if texts else {} for piece in pieces]
    for at, entry in enumerate(content):
        entry |= {"logprob": None if at == odd else -0.5 - at / 100, "top_logprobs": []}
    return {"logprobs": {"content": content}}


def test_only_the_tokens_of_the_calls_are_read() -> None:
    pieces = [bytes([byte]) for byte in f"I ask. {PLAIN}".encode()]
    message = AIMessage("I ask.", tool_calls=[{**PARIS, "id": "1"}], response_metadata=openai_shape(pieces, odd=3))
    mask = deciding_tokens(pieces, [PARIS])
    assert mask is not None
    everything, calls = read_signals(message), read_signals(message, of_calls=True)
    assert everything.signals["token_logprob"].size == len(pieces) - 1
    np.testing.assert_allclose(calls.signals["token_logprob"], [-0.5 - at / 100 for at in np.flatnonzero(mask)])
    assert calls.notices == everything.notices


@pytest.mark.parametrize("metadata", [{"texts": False}, {}])
def test_without_the_texts_of_tokens_all_are_read(metadata: dict[str, Any]) -> None:
    pieces = [bytes([byte]) for byte in (PLAIN if metadata else PLAIN.replace("Paris", "Rome")).encode()]
    message = AIMessage("", tool_calls=[{**PARIS, "id": "1"}], response_metadata=openai_shape(pieces, **metadata))
    assert read_signals(message, of_calls=True).signals["token_logprob"].size == len(pieces)


def test_what_a_backend_recorded() -> None:
    text = f"Hm. {PLAIN}"
    recorded = {
        "token_signals": {"top_k": [float(at) for at in range(len(text) + 2)]},
        "generated_text": {"text": text, "sizes": [1] * len(text) + [4, 0]},  # a stop string, and the end token
    }
    message = AIMessage("Hm.", tool_calls=[{**PARIS, "id": "1"}], response_metadata=recorded)
    found = read_signals(message, of_calls=True).signals["top_k"]
    assert found.tolist() == [*range(14, 21), *range(text.index('{"city'), len(text) - 1)]
    assert read_signals(message).signals["top_k"].size == len(text) + 2


@pytest.mark.parametrize(
    "held",
    [
        None,
        "text",
        {"text": "ab"},
        {"text": "ab", "sizes": [1]},
        {"text": "ab", "sizes": ["1", "1"]},
        {"text": "a\ufffd", "sizes": [1, 1]},
        {"text": "", "sizes": []},
    ],
)
def test_a_record_that_does_not_fit_tells_nothing(held: Any) -> None:
    assert spelled_by({"generated_text": held}) is None
