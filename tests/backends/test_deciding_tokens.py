"""What is recorded of a tool call's tokens by llama.cpp, and which of them decide; sync and async."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_reasc_llama_cpp import ChatLlamaCpp
from pydantic import BaseModel, Field

from langchain_reasc import Measure, ReASCRunnable
from langchain_reasc.models.logprobs import read_signals
from langchain_reasc.models.logprobs.deciding import deciding_tokens, spelled_by

from .faces import Face, merged
from .tiny_gguf import write_tiny_model
from .tool_templates import HERMES, LLAMA

MEAN = Measure("token_logprob", "mean")


class Weather(BaseModel):
    """The weather at a place."""

    city: str = Field(max_length=6, description="where")
    days: int = Field(ge=1, le=9)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = ["<tool_call>", '{"name": "Weather"']
    return write_tiny_model(tmp_path_factory.mktemp("deciding") / "tools.gguf", words=words, context=4096, ends=False)


@pytest.fixture(scope="module", params=["hermes", "llama", "instructed", "shipped"])
def model(request: pytest.FixtureRequest, path: Path) -> Iterator[Any]:
    """Random models, whose tokens are bytes, and the shipped one, each held to calls by a grammar."""
    template = {"hermes": HERMES, "llama": LLAMA}.get(request.param)
    options = {} if request.param == "shipped" else {"model_path": path, "chat_template": template}
    with ChatLlamaCpp(seed=1, **options) as made:
        yield made.bind_tools([Weather], tool_choice="Weather", max_tokens=200)


def decided(message: AIMessage) -> tuple[str, list[bool]]:
    """What the tokens that decide spell, and which they are."""
    spelled = spelled_by(message.response_metadata)
    assert spelled is not None
    assert b"".join(spelled).decode() == message.response_metadata["generated_text"]["text"]
    mask = deciding_tokens(spelled, message.tool_calls)
    assert mask is not None
    return b"".join(piece for piece, kept in zip(spelled, mask, strict=True) if kept).decode(), mask.tolist()


def check(message: AIMessage) -> None:
    [call] = message.tool_calls
    text, mask = decided(message)
    name, _, arguments = text.partition("{" if text.startswith("Weather") else "Weather\"{")
    assert "Weather" in (name or text)
    assert json.JSONDecoder(strict=False).raw_decode(text[text.rindex('{ "city' if '{ "city' in text else '{"city') :])[0] == call["args"]
    signals = message.response_metadata["token_signals"]["token_logprob"]
    own = [value for value, kept in zip(signals, mask, strict=True) if kept]
    reading = read_signals(message, of_calls=True)
    assert reading.signals["token_logprob"].tolist() == pytest.approx(own)
    assert len(own) < len(signals) - 10
    assert reading.score(MEAN) != pytest.approx(read_signals(message).score(MEAN))
