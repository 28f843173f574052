"""Tokens are counted from what arrived where a server's usage is missing or cannot be true."""

from typing import Any

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call_chunk

from langchain_reasc.models import is_estimated, output_tokens, prepare_model
from langchain_reasc.models.chunks import salvaged
from langchain_reasc.models.usage import Usage
from langchain_reasc.runnable.message_metadata import failure_notices
from langchain_reasc.sampling import SampledResponse
from models.logprobs.payloads import SHAPES, TEXT

WORDS = "word " * 500  # 2,500 characters
CALL: Any = {"name": "look_up", "args": {"query": WORDS}, "id": "1"}
BROKEN: Any = {"name": "look_up", "args": WORDS, "id": "1", "error": "no JSON"}
ENTRIES: Any = SHAPES["OpenAI chat"]


def beside(**kwargs: Any) -> AIMessage:
    return AIMessage("", additional_kwargs=kwargs)


WRITTEN = {
    "text": AIMessage(WORDS),
    "text in blocks": AIMessage([{"type": "text", "text": WORDS}]),
    "two blocks": AIMessage([WORDS[:1250], {"type": "text", "text": WORDS[1250:]}]),
    "a call": AIMessage("", tool_calls=[CALL]),
    "a call that is no JSON": AIMessage("", invalid_tool_calls=[BROKEN]),
    "a call of Anthropic's": AIMessage([{"type": "tool_use", "input": CALL["args"]}], tool_calls=[CALL]),
    "a call of the Responses API": AIMessage([{"type": "function_call", "arguments": WORDS}], tool_calls=[CALL]),
    "a call as it streams": AIMessageChunk("", tool_call_chunks=[tool_call_chunk(name="look_up", args=WORDS, index=0)]),
    "an older call": beside(function_call={"name": "look_up", "arguments": WORDS}),
    "a call and its copy": AIMessage("", tool_calls=[CALL], additional_kwargs={"tool_calls": [{"function": CALL}]}),
    "Anthropic's and Gemini's thinking": AIMessage([{"type": "thinking", "thinking": WORDS, "signature": "c2ln"}]),
    "Mistral's thinking": AIMessage([{"type": "thinking", "thinking": [{"type": "text", "text": WORDS}]}]),
    "Bedrock's reasoning": AIMessage([{"type": "reasoning_content", "reasoning_content": {"text": WORDS}}]),
    "OpenAI's summaries": AIMessage([{"type": "reasoning", "summary": [{"type": "summary_text", "text": WORDS}]}]),
    "gpt-oss's reasoning": AIMessage([{"type": "reasoning", "content": [{"type": "reasoning_text", "text": WORDS}]}]),
    "LangChain's reasoning": AIMessage([{"type": "reasoning", "reasoning": WORDS}]),
    "reasoning_content": beside(reasoning_content=WORDS),
    "OpenRouter's reasoning": beside(reasoning=WORDS, reasoning_details=[{"type": "reasoning.text", "text": WORDS}]),
    "details of reasoning alone": beside(reasoning_details=[{"type": "reasoning.text", "text": WORDS}]),
    "the older Responses API": beside(reasoning={"summary": [{"type": "summary_text", "text": WORDS}]}),
    "a refusal": beside(refusal=WORDS),
    "a refusal in a block": AIMessage([{"type": "refusal", "refusal": WORDS}]),
    "an object": AIMessage(WORDS, additional_kwargs={"parsed": {"text": WORDS}}),
    "logprobs of the answer alone": AIMessage(TEXT, additional_kwargs=dict(reasoning=WORDS), response_metadata=ENTRIES),
    "Chinese": AIMessage("\u4e2d\u6587\u5b57" * 278),  # some .7 tokens a character
}


def usage(given: int, generated: int) -> Any:
    return {"input_tokens": given, "output_tokens": generated, "total_tokens": given + generated}


def tokens(message: AIMessage) -> tuple[int, bool]:
    return output_tokens(message), is_estimated(message)


@pytest.mark.parametrize(
    "reported", [None, usage(7, 0), usage(7, -3), usage(-7, 3), usage(10**30, 3), usage(7, 10**30)]
)
def test_tokens_are_counted_where_usage_fails(reported: Any) -> None:
    message = AIMessage(TEXT, response_metadata=SHAPES["Together"], usage_metadata=reported)
    assert tokens(message) == (3, True)


@pytest.mark.parametrize("metadata", [{}, {"logprobs": -0.5}, {"token_signals": {}}])
def test_without_tokens_the_text_is_measured(metadata: dict[str, Any]) -> None:
    assert tokens(AIMessage("twelve bytes", response_metadata=metadata)) == (3, True)
    assert tokens(AIMessage("thirteen byte", response_metadata=metadata)) == (4, True)


@pytest.mark.parametrize("message", WRITTEN.values(), ids=WRITTEN)
def test_all_that_was_written_is_counted(message: AIMessage) -> None:
    """Text, calls, reasoning and refusals, in each provider's form, and each of them once."""
    assert 620 <= output_tokens(message) <= 640
    assert is_estimated(message)
    [lost] = [salvaged([part]) for part in [AIMessageChunk(**message.model_dump(exclude={"type"}))]]
    assert lost is not None and 620 <= output_tokens(lost) <= 640
    nothing = message.model_copy(update={"usage_metadata": usage(7, 0)})
    assert 620 <= output_tokens(nothing) <= 640, "a usage of no tokens is not believed"


TOOL = {"type": "function", "function": {"name": "look_up", "description": WORDS, "parameters": {"type": "object"}}}
PICTURE = {"type": "image_url", "image_url": {"url": "https://example.com/one.png"}}
SOUND = {"type": "input_audio", "input_audio": {"data": "UklGRiQA" * 50_000, "format": "wav"}}
PROMPTS: dict[str, tuple[list[Any], dict[str, Any], int]] = {
    "text": ([HumanMessage(WORDS)], {}, 625),
    "Chinese": ([HumanMessage("\u4e2d\u6587\u5b57" * 278)], {}, 625),
    "blocks": ([HumanMessage([{"type": "text", "text": WORDS}])], {}, 625),
    "a history": (
        [HumanMessage("q"), AIMessage("", tool_calls=[CALL]), ToolMessage(WORDS, tool_call_id="1")],
        {},
        1250,
    ),
    "documents": ([HumanMessage([{"type": "document", "source": {"type": "text", "data": WORDS}}])], {}, 625),
    "tools": ([HumanMessage("q")], {"tools": [TOOL]}, 625),
    "a schema": ([HumanMessage("q")], {"response_format": {"json_schema": {"schema": {"title": WORDS}}}}, 625),
    "a picture": ([HumanMessage([PICTURE])], {}, 1000),
    "a sound": ([HumanMessage([SOUND])], {}, 1000),
}


@pytest.mark.parametrize("case", PROMPTS)
def test_all_that_is_sent_is_counted(case: str) -> None:
    messages, arguments, tokens = PROMPTS[case]
    found = prepare_model(GenericFakeChatModel(messages=iter(())).bind(**arguments)).prompt_tokens(messages)
    assert tokens <= found <= tokens + 100
    retried = GenericFakeChatModel(messages=iter(())).bind(**arguments).with_retry()
    assert prepare_model(retried).prompt_tokens(messages) == found


def test_true_usage_is_taken_as_it_is() -> None:
    assert tokens(AIMessage(TEXT, response_metadata=SHAPES["Together"], usage_metadata=usage(7, 9))) == (
        9,
        False,
    )
    assert tokens(AIMessage("", usage_metadata=usage(7, 0))) == (0, False)
    assert tokens(AIMessage(TEXT, usage_metadata=usage(0, 3))) == (3, False)  # the prompt is on another sample's
    estimated = AIMessage(TEXT, usage_metadata=usage(7, 3), response_metadata={"usage_estimated": True})
    assert tokens(estimated) == (3, True)


def test_a_bill_with_nonsense_in_it_is_estimated() -> None:
    messages = [AIMessage(TEXT, usage_metadata=one) for one in (usage(7, 3), usage(-100, -50), usage(7, 0))]
    bill = Usage.add_up(messages[:1], messages[1:])
    assert (bill.input_tokens, bill.output_tokens, bill.unused_output_tokens, bill.estimated) == (21, 7, 4, True)


def test_requests_made_again_are_told_with_what_was_lost() -> None:
    attempts = [{"server": "a", "error": "cut", "received_tokens": 7}, {"server": "b", "error": "cut"}]
    moved = AIMessage("it is 1", response_metadata={"failed_attempts": attempts})
    samples = [
        SampledResponse(0, moved),
        SampledResponse(1, None, "failed", RuntimeError("gone")),
        SampledResponse(2, AIMessage("it is 1")),
    ]
    failed, repeated = failure_notices(samples)
    assert "1 of 3 samples" in failed and "2 requests" in repeated and "7 tokens" in repeated
    assert failure_notices(samples[2:]) == []


def test_a_cut_off_sample_costs_the_tokens_its_backend_received() -> None:
    assert tokens(AIMessage("a" * 100, response_metadata={"received_tokens": 9})) == (9, True)


@pytest.mark.parametrize("odd", ["12", None, True, 2.5])
def test_usage_that_is_no_number_of_tokens_never_reaches_the_bill(odd: Any) -> None:
    """A model class may put anything there without LangChain's checks."""
    broken = AIMessage("twelve bytes").model_copy(update={"usage_metadata": usage(7, 3) | {"output_tokens": odd}})
    missing = AIMessage("twelve bytes").model_copy(update={"usage_metadata": {"total_tokens": 9}})
    for message in (broken, missing):
        assert tokens(message) == (3, True)
        spent = Usage.add_up([message, AIMessage("7", usage_metadata=usage(5, 2))])
        assert (spent.bill["input_tokens"], spent.bill["output_tokens"]) == (10, 5) and spent.estimated


def test_details_that_cannot_be_true_are_left_out() -> None:
    told = usage(7, 3) | {
        "total_tokens": -4,
        "input_token_details": {"cache_read": 10**30, "cache_creation": 2},
        "output_token_details": {"reasoning": -1},
    }
    bill = Usage.add_up([AIMessage("7", usage_metadata=told)]).bill
    assert bill["total_tokens"] == 10 and bill["input_token_details"] == {"cache_creation": 2}
    assert not bill.get("output_token_details")
