"""Conversations longer than the context: an error, or the oldest turns go."""

from pathlib import Path
from typing import Any, cast

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_reasc_llama_cpp import ChatLlamaCpp
from langchain_reasc_llama_cpp.prompts import newest_turns

from backends.llama_cpp.faces import Face, output_tokens
from langchain_reasc.exceptions import ConfigurationError, ContextOverflowError


def turn(number: int, *, tool: bool = False) -> list[BaseMessage]:
    if not tool:
        return [HumanMessage(f"question {number}"), AIMessage(f"answer {number}")]
    call = {"name": "ping", "args": {}, "id": f"c{number}"}
    result = ToolMessage(f"result {number}", tool_call_id=f"c{number}")
    return [HumanMessage(f"question {number}"), AIMessage("", tool_calls=[call]), result, AIMessage("so")]


SYSTEM = SystemMessage("Be brief.")
TALK = [SYSTEM, *turn(1), *turn(2, tool=True), *turn(3), *turn(4, tool=True), HumanMessage("newest")]


@pytest.mark.parametrize("room", range(1, len(TALK)))
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


def test_the_oldest_turns_go(endless_path: Path, face: Face) -> None:
    with ChatLlamaCpp(model_path=endless_path, n_ctx=400, on_overflow="truncate", signals=()) as model:
        whole = model.get_num_tokens_from_messages(TALK)
        assert whole > 400
        message = face.invoke(model, TALK, max_tokens=60)
        usage = cast(Any, message.usage_metadata)
        dropped = message.response_metadata["dropped_messages"]
        kept = [SYSTEM, *TALK[dropped + 1 :]]
        assert usage["input_tokens"] == model.get_num_tokens_from_messages(kept) <= 340
        assert output_tokens(message) == 60
        assert isinstance(kept[1], HumanMessage)
        [chunk] = [c for c in face.stream(model, TALK, max_tokens=60) if c.response_metadata]
        assert chunk.response_metadata["dropped_messages"] == dropped
        [(_, sample)] = face.sample(model, TALK, n=1, max_tokens=60)
        assert sample.response_metadata["dropped_messages"] == dropped
        # Where the response needs more room, more of them go; but a quarter of the context is all it is kept.
        longer = face.invoke(model, TALK, max_tokens=1000)
        assert longer.response_metadata["dropped_messages"] >= dropped
        assert cast(Any, longer.usage_metadata)["input_tokens"] <= 300
        assert "dropped_messages" not in face.invoke(model, "hi", max_tokens=2).response_metadata


def test_the_newest_turn_must_fit(endless_path: Path, face: Face) -> None:
    long = [*TALK[:-1], HumanMessage("x" * 330)]
    with ChatLlamaCpp(model_path=endless_path, n_ctx=400, on_overflow="truncate", signals=()) as model:
        message = face.invoke(model, long)
        assert message.response_metadata["dropped_messages"] == len(TALK) - 2
        assert cast(Any, message.usage_metadata)["total_tokens"] == 400
        assert message.response_metadata["finish_reason"] == "length"
        assert {output_tokens(one) for _, one in face.sample(model, long, n=3)} == {output_tokens(message)}
        with pytest.raises(ContextOverflowError, match="the context holds 400"):
            face.invoke(model, [*long, AIMessage("y"), HumanMessage("x" * 400)])


def test_by_default_nothing_goes(endless_path: Path, face: Face) -> None:
    with ChatLlamaCpp(model_path=endless_path, n_ctx=400) as model:
        whole = model.get_num_tokens_from_messages(TALK)
        with pytest.raises(ContextOverflowError, match=f"the prompt has {whole} tokens, but the context holds 400"):
            face.invoke(model, TALK)
        with pytest.raises(ContextOverflowError):
            face.sample(model, TALK, n=2)
        assert face.invoke(model, TALK, on_overflow="truncate", max_tokens=2).response_metadata["dropped_messages"]
        with pytest.raises(ConfigurationError, match=r"on_overflow: .*'drop'"):
            face.invoke(model, TALK, on_overflow="drop")
