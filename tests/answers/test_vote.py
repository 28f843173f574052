"""What a whole message votes for: cut off, tool calls, refusals, reasoning, and whose word goes first."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk

from langchain_reasc.answers import Vote, boxed, extractor, json_field, normalize, vote_of
from langchain_reasc.answers.vote import CUT_OFF, FILTERED, INVALID_CALLS, NO_ANSWER, REFUSAL, UNENDED

AUTO = extractor("auto")
HALF = "9*26=234. 4*7=28."
LENGTH = {"finish_reason": "length"}


def _call(name: str, id: str = "1", **args: Any) -> dict[str, Any]:
    return {"name": name, "args": args, "id": id}


def _calling(*calls: dict[str, Any], text: str = "", **fields: Any) -> AIMessage:
    return AIMessage(text, tool_calls=list(calls), **fields)


@pytest.mark.parametrize(
    "metadata",
    [
        {"finish_reason": "length"},  # OpenAI, vLLM, SGLang, llama.cpp, Mistral, Groq, Together, ...
        {"finish_reason": "lengthlength"},  # two chunks of a stream that both say so
        {"finish_reason": "model_length"},  # Mistral: the context is full
        {"finish_reason": "MAX_TOKENS"},  # Gemini
        {"finish_reason": "FinishReason.MAX_TOKENS"},
        {"stop_reason": "max_tokens"},  # Anthropic
        {"stop_reason": "model_context_window_exceeded"},
        {"stopReason": "max_tokens"},  # Bedrock Converse
        {"done_reason": "length"},  # Ollama
        {"finish_reason": "abort"},  # vLLM
        {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},  # OpenAI's Responses API
        {"status": "incomplete"},
    ],
)
def test_a_response_that_was_cut_off_votes_only_with_what_it_states(metadata: dict[str, Any]) -> None:
    half = AIMessage(HALF, response_metadata=metadata)
    assert vote_of(half, AUTO) == Vote(None, cut_off=True, why_none=CUT_OFF)
    stated = AIMessage("So the answer is 28. To check, 4 *", response_metadata=metadata)
    assert vote_of(stated, AUTO) == Vote("28", cut_off=True)


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"finish_reason": "stop"},
        {"finish_reason": "STOPSTOP"},
        {"finish_reason": "eos"},
        {"stop_reason": "end_turn"},
        {"stop_reason": "stop_sequence"},
        {"done_reason": "stop"},
        {"status": "completed"},
        {"finish_reason": None},
    ],
)
def test_a_response_that_came_to_its_end_votes_with_its_last_number(metadata: dict[str, Any]) -> None:
    assert vote_of(AIMessage(HALF, response_metadata=metadata), AUTO) == Vote("28")


def test_chunks_of_a_stream_add_up_to_the_same_vote() -> None:
    chunks = [AIMessageChunk("9*26=234. "), AIMessageChunk("4*7=28.", response_metadata=LENGTH)]
    assert vote_of(chunks[0] + chunks[1], AUTO).why_none == CUT_OFF  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "text", "answer"),
    [
        ("auto", "The answer is 2", None),  # of 28, perhaps
        ("auto", "The answer is 2.", None),  # of 2.8
        ("auto", "The answer is 28.\n", "28"),
        ("auto", "28 is the answer, as", "28"),
        ("auto", "\\boxed{28", None),
        ("auto", "\\boxed 2", None),
        ("auto", "\\boxed{28} or", "28"),
        ("auto", "#### 28\nQ: and", "28"),
        ("auto", "#### 2", None),
        ("auto", "Paris **1789**", None),
        ("auto", "<think>The answer is 28. But", None),
        ("boxed", "\\boxed{28} or", "28"),
        ("boxed", "\\boxed 2", None),
        ("number", HALF, None),
        ("number", "The answer is 28 apples.\nAnd", "28"),
        ("choice", "(A) is wrong, (B)", None),
        ("choice", "So B", None),
        ("choice", " (B)", "b"),  # all that one token can say
        ("choice", "B or", None),
        ("choice", "The answer is (B). As to (A), it is wr", "b"),
        ("json:answer", '{"answer": 2', None),
        ("json:answer", '{"answer": 28} and', "28"),
        ("json:answer", '{"steps": [{"answer": 1}], "answer": 2', None),
        ("regex:#### (\\d+)", "#### 28\nQ", "28"),
        ("regex:#### (\\d+)", "#### 2", None),
        ("regex:(\\d+)", "28 and", None),
        ("text", "a whole", None),
    ],
)
def test_what_a_text_that_was_cut_off_states(spec: str, text: str, answer: str | None) -> None:
    assert vote_of(AIMessage(text, response_metadata=LENGTH), extractor(spec)).answer == answer


def test_what_a_function_finds_in_half_a_response_may_be_half_an_answer() -> None:
    found = vote_of(AIMessage(HALF, response_metadata=LENGTH), extractor(lambda text: text[-3:-1]))
    assert found == Vote(None, cut_off=True, why_none=CUT_OFF)


def test_calls_are_the_answer_whatever_the_text_their_order_and_ids() -> None:
    one = _calling(_call("f", x={"c": 1, "d": 2}, s="A"), _call("g"), text="The answer is 5.")
    other = _calling(_call("g", id="9"), _call("f", id="8", s="A", x={"d": 2.0, "c": 1}))
    assert vote_of(one, AUTO) == vote_of(other, AUTO)
    spelled = '[{"args": {"s": "A", "x": {"c": 1, "d": 2}}, "name": "f"}, {"args": {}, "name": "g"}]'
    assert vote_of(one, AUTO).answer == spelled


@pytest.mark.parametrize(
    "other",
    [
        _calling(_call("f", x=2, s="A")),
        _calling(_call("f", x=1, s="a")),  # strings are not case-folded
        _calling(_call("f", x="1", s="A")),
        _calling(_call("f", x=True, s="A")),
        _calling(_call("f", s="A")),
        _calling(_call("F", x=1, s="A")),
        _calling(_call("f", x=1, s="A"), _call("f", x=1, s="A")),  # a multiset
    ],
)
def test_other_calls_are_another_answer(other: AIMessage) -> None:
    assert vote_of(other, AUTO).answer != vote_of(_calling(_call("f", x=1, s="A")), AUTO).answer


def test_a_recorded_call_stays_the_answer_it_was() -> None:
    answer = vote_of(_calling(_call("f", path="/Home/A", n=[1.0, {"b": 2, "a": None}])), AUTO).answer
    assert answer == '[{"args": {"n": [1, {"a": null, "b": 2}], "path": "/Home/A"}, "name": "f"}]'
    assert normalize(answer) == answer
    assert normalize('[{"name": "f", "args": {"n": [1, {"b": 2.0, "a": null}], "path": "/Home/A"}}]') == answer


@pytest.mark.parametrize("spec", ["auto", "boxed", "number", "choice", "text", "regex:(\\d+)"])
def test_named_extractors_of_text_do_not_outrank_calls(spec: str) -> None:
    assert vote_of(_calling(_call("f"), text="\\boxed{5}"), extractor(spec)).answer == '[{"args": {}, "name": "f"}]'


@pytest.mark.parametrize("spec", ["json:n", lambda text: "5" if "n" in text else None, json_field("n") | boxed()])
def test_functions_and_json_go_before_calls_where_they_find_an_answer(spec: Any) -> None:
    extract = extractor(spec)
    assert vote_of(_calling(_call("f"), text='{"n": 5}'), extract).answer == "5"
    assert vote_of(_calling(_call("f"), text="?"), extract).answer == '[{"args": {}, "name": "f"}]'


def test_calls_that_cannot_be_read_abstain() -> None:
    broken = {"name": "f", "args": '{"x": ', "id": "1", "error": "not JSON"}
    assert vote_of(AIMessage("\\boxed{5}", invalid_tool_calls=[broken]), AUTO) == Vote(None, why_none=INVALID_CALLS)
    both = AIMessage("", tool_calls=[_call("g")], invalid_tool_calls=[broken])
    assert vote_of(both, AUTO).why_none == INVALID_CALLS
    malformed = AIMessage("", response_metadata={"finish_reason": "MALFORMED_FUNCTION_CALL"})
    assert vote_of(malformed, AUTO).why_none == INVALID_CALLS


def test_half_a_call_is_no_answer() -> None:
    assert vote_of(_calling(_call("f", x="/ho"), response_metadata=LENGTH), AUTO) == Vote(None, True, CUT_OFF)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (AIMessage([{"type": "refusal", "refusal": "I will not compute 5."}]), REFUSAL),
        (AIMessage([{"type": "text", "text": "\\boxed{5}"}, {"type": "refusal", "refusal": "no"}]), REFUSAL),
        (AIMessage("", additional_kwargs={"refusal": "no 5"}), REFUSAL),
        (AIMessage("5", response_metadata={"stop_reason": "refusal"}), REFUSAL),
        (AIMessage("5", response_metadata={"finish_reason": "content_filter"}), FILTERED),
        (AIMessage("5", response_metadata={"finish_reason": "SAFETY"}), FILTERED),
        (AIMessage("5", response_metadata={"stopReason": "guardrail_intervened"}), FILTERED),
        (AIMessage("5", response_metadata={"incomplete_details": {"reason": "content_filter"}}), FILTERED),
        (AIMessage("5", additional_kwargs={"refusal": ""}), None),
        (AIMessage("none here"), NO_ANSWER),
        (AIMessage(""), NO_ANSWER),
        (AIMessage("<think>5"), UNENDED),
    ],
)
def test_why_a_response_casts_no_vote(message: AIMessage, why: str | None) -> None:
    assert vote_of(message, AUTO).why_none == why
    if why in (REFUSAL, FILTERED):
        assert vote_of(message, extractor(lambda text: "5")).why_none == why


@pytest.mark.parametrize(
    "text",
    [
        "<think>maybe \\boxed{5}</think>The answer is 6.",
        "maybe \\boxed{5}</think>6",  # the chat template opened it
        "<thinking>5</thinking><answer>6</answer>",
        "[THINK]\\boxed{5}[/THINK]6",
        "◁think▷\\boxed{5}◁/think▷6",
        "<seed:think>\\boxed{5}</seed:think>6",
        "<think>a</think>6<think>\\boxed{5}</think>",
        "<|channel|>analysis<|message|>\\boxed{5}<|end|><|start|>assistant<|channel|>final<|message|>6<|return|>",
        "<|channel|>final<|message|>5<|end|><|channel|>final <|constrain|>json<|message|>6",
        "Here is my thought process: \\boxed{5} Here is my response: 6",
        "<think>the tag <think> opens, \\boxed{5}</think>6",
    ],
)
def test_reasoning_never_holds_the_answer(text: str) -> None:
    assert vote_of(AIMessage(text), AUTO).answer == "6"
    assert vote_of(AIMessage(text), extractor(lambda seen: "5" if "5" in seen else "6")).answer == "6"


def test_reasoning_in_blocks_and_fields_is_no_text() -> None:
    blocks: list[str | dict[Any, Any]] = [
        {"type": "reasoning", "reasoning": "\\boxed{5}"},
        {"type": "thinking", "thinking": "\\boxed{5}"},
        {"type": "text", "text": "\\boxed{5}", "phase": "commentary"},
        {"type": "text", "text": "It is 6."},
    ]
    assert vote_of(AIMessage(blocks), AUTO).answer == "6"
    assert vote_of(AIMessage("6", additional_kwargs={"reasoning_content": "\\boxed{5}"}), AUTO).answer == "6"
