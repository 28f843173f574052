"""What counts as a stated confidence, what it says, and that it leaves the text."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, ChatMessage, HumanMessage, SystemMessage

from langchain_reasc.answers import extractor, vote_of
from langchain_reasc.models import (
    ask_for_confidence,
    instruction,
    read_stated_confidence,
    stated_confidence,
    without_statement,
)

pytestmark = pytest.mark.sync_only

STATED = {
    0.85: [
        *("Confidence: 85%", "Confidence: 85", "confidence: 0.85", "Confidence: 85/100", "Confidence: 8.5/10"),
        *("Confidence: 8,5/10", "Confidence: 85 out of 100", "Confidence: 0,85", "Confidence: 85\u202f%"),
        *("Confidence：８５％", "Confidence: 85\\%", "Confidence: 85 percent.", "**Confidence:** 85%"),
        *("**Confidence**: 85%", "__Confidence: 85%__", "> `Confidence: 85%`", "### Final confidence: 85%"),
        *("- My overall confidence: ~85%", "My confidence in this answer is 85%.", "Confidence (0-100): 85"),
        *("Confidence score: about 85%", "Confidence = 85%", "Confidence: 85% (I checked it 3 times)"),
        *("Confidence: 85%, because step 2 of 3 is unsure", "Confidence: 80-90%", "Confidence: 80% to 90%"),
        *("Confidence: between 80 and 90%", "Confidence: 0.8–0.9"),
    ],
    0.8: ["Confidence: 4/5"],
    0.855: ["Confidence: 85,5 %"],
    1.0: ["Confidence: 100%", "Confidence: 1.0"],
    0.0: ["Confidence: 0%"],
    0.01: ["Confidence: 1%"],
    0.005: ["Confidence: 0.5%"],
}
NO_NUMBER = [
    *("Confidence: high", "Confidence: very high indeed", "Confidence:", "Confidence: n/a", "Confidence: NaN"),
    *("Confidence: nan%", "Confidence: inf", "Confidence: 1000 %", "Confidence: 1,000%", "Confidence: 101%"),
    *("Confidence: -5%", "Confidence: −5%", "Confidence: 12/10", "Confidence: 5/0", "Confidence: 1e2%"),
    *("Confidence: 0.8.5", "Confidence: " + "9" * 5000),
]
NO_STATEMENT = [
    "",
    "85%",
    "Confidence is key.",
    "The critical value at the 95% confidence level: 1.96",
    "A confidence interval: 42",
    "They said with confidence: the number of apples that Tom has in the end is 42.",
    "Overconfidence: 42",
    '{"answer": 42, "confidence": 0.9}',
    '{\n  "answer": 42,\n  "confidence": 0.9\n}',
    '{"text": "It is 42. Confidence: 85%"}',
    "{'answer': 42, 'confidence': 0.9}",
    "The form says Confidence: 85% in its first line, so the rest is 15.",
]


@pytest.mark.parametrize(("line", "share"), [(line, share) for share, lines in STATED.items() for line in lines])
def test_a_statement_says_a_share_of_the_whole(line: str, share: float) -> None:
    for text in (line, f"The answer is 42.\n{line}", f"The answer is 42.\r\n\r\n{line}\n\n", f"{line}\n\nSo it is 42."):
        assert stated_confidence(text) == pytest.approx(share)
        left = without_statement(text)
        assert left in ("", "The answer is 42.", "\nSo it is 42.")
        assert stated_confidence(left) is None


@pytest.mark.parametrize("line", NO_NUMBER)
def test_what_is_no_share_is_no_confidence_and_leaves_the_text(line: str) -> None:
    assert stated_confidence(f"It is 42.\n{line}") is None
    assert without_statement(f"It is 42.\n{line}") == "It is 42."


@pytest.mark.parametrize("text", NO_STATEMENT)
def test_other_texts_stay_as_they_are(text: str) -> None:
    for whole in (text, f"{text}\nIt is 42.  \n"):
        assert stated_confidence(whole) is None
        assert without_statement(whole) == whole


@pytest.mark.parametrize(
    ("text", "share", "left"),
    [
        ("Confidence: 30%\nNo, wait: 42.\nConfidence: 90%", 0.9, "No, wait: 42."),
        ("It is 42.\nConfidence: 90%\nConfidence: high", None, "It is 42."),
        ("It is 42. Confidence: 85%", 0.85, "It is 42."),
        ("It is 42 (confidence: 85%).", 0.85, "It is 42"),
        ("It is 42 - Confidence: 85%", 0.85, "It is 42"),
        ("<answer>42</answer> Confidence: 85%", 0.85, "<answer>42</answer>"),
        ("It is **42** Confidence: 85%", 0.85, "It is **42**"),
        ("It is `42` **Confidence:** 85%", 0.85, "It is `42`"),
        ("| 42 | Confidence: 85% |", 0.85, "| 42"),
        ("<answer>42\nConfidence: 85%</answer>", 0.85, "<answer>42\n</answer>"),
        ("<answer>42. Confidence: 85%</answer>", 0.85, "<answer>42.</answer>"),
        ("It is 42.\nConfidence: 85%\n```", 0.85, "It is 42.\n```"),
        ("Confidence: 85%. The answer is 42.", 0.85, "The answer is 42."),
        ("Asked for 'Confidence: 20%', I say 42.\nConfidence: 85%", 0.85, "Asked for 'Confidence: 20%', I say 42."),
        ("Of them 30% are red, 12% blue.\nConfidence: 85%", 0.85, "Of them 30% are red, 12% blue."),
    ],
)
def test_where_it_stands(text: str, share: float | None, left: str) -> None:
    assert stated_confidence(text) == share
    assert without_statement(text) == left


@pytest.mark.parametrize("text", ["-" * 50_000 + "Confidence", "Confidence: " * 5_000, "Confidence: " + "1-" * 20_000])
def test_odd_texts_take_no_time(text: str) -> None:
    stated_confidence(text)
    without_statement(text)


# Messages -------------------------------------------------------------------------------------------------------------


def said(content: Any, **fields: Any) -> tuple[Any, float | None]:
    """What is left of a response's content, and the confidence that it stated."""
    left = read_stated_confidence(AIMessage(content, **fields))
    return left.content, left.response_metadata["verbalized_confidence"]


def test_the_number_is_never_the_answer() -> None:
    for text in ("It is 42.\nConfidence: 85%", "So 42, with 3 left over: 42\n**Confidence:** 85/100"):
        for spec in ("auto", "number"):
            assert vote_of(read_stated_confidence(AIMessage(text)), extractor(spec)).answer == "42"


def test_anthropics_blocks() -> None:
    thinking = {"type": "thinking", "thinking": "Confidence: 10%", "signature": "s"}
    call = {"type": "tool_use", "id": "1", "name": "ping", "input": {}}
    one = {"type": "text", "text": "It is 42.\n\nConfidence: 85%"}
    assert said([thinking, one, call]) == ([thinking, {"type": "text", "text": "It is 42."}, call], 0.85)
    alone = {"type": "text", "text": "Confidence: 85%"}
    assert said([{"type": "text", "text": "It is 42."}, alone]) == ([{"type": "text", "text": "It is 42."}], 0.85)
    assert said(["It is 42.", "\nConfidence: 85%"]) == (["It is 42."], 0.85)
    assert said([thinking, call]) == ([thinking, call], None)
    cited = [{"type": "text", "text": "It is 42.", "citations": [{"cited_text": "42"}]}, alone]
    assert said(cited) == (cited[:1], 0.85)


def test_reasoning_states_nothing() -> None:
    assert said("<think>Hm.\nConfidence: 20%\n</think>It is 42.")[1] is None
    assert said("<think>Hm.\nConfidence: 20%\n</think>It is 42.\nConfidence: 85%")[1] == 0.85
    assert said("<think>Never ends.\nConfidence: 20%\n")[1] is None
    fields = {"additional_kwargs": {"reasoning_content": "Confidence: 20%"}}
    assert said("", **fields) == ("", None)


@pytest.mark.parametrize(
    ("text", "stated"),
    [("It is 42.\nConfidence: 8", None), ("It is 42.\nConfidence: 85%\nI ch", 0.85), ("It is", None)],
)
def test_a_response_that_was_cut_off_states_only_what_it_ended(text: str, stated: float | None) -> None:
    for reason in ({"finish_reason": "length"}, {"stop_reason": "max_tokens"}, {"finish_reason": "cancelled"}):
        left, found = said(text, response_metadata=reason)
        assert found == stated
        assert "Confidence" not in left


def test_a_refusal_states_nothing() -> None:
    refusal = [{"type": "refusal", "refusal": "No.\nConfidence: 85%"}]
    assert said(refusal) == (refusal, None)


def test_the_rest_of_the_message_stays() -> None:
    call = {"name": "ping", "args": {}, "id": "1", "type": "tool_call"}
    message = AIMessage("Confidence: 85%", tool_calls=[call], id="m", response_metadata={"model_name": "m"})
    left = read_stated_confidence(message)
    assert (left.content, left.tool_calls, left.id) == ("", [call], "m")
    assert left.response_metadata["model_name"] == "m"
    assert message.content == "Confidence: 85%" and "verbalized_confidence" not in message.response_metadata


def test_tokens_that_only_the_text_tells_of_stay_on_the_bill() -> None:
    from langchain_reasc.models import output_tokens

    message = AIMessage("It is 42.\nConfidence: 85%")
    assert output_tokens(read_stated_confidence(message)) == output_tokens(message) > 3


# Prompts --------------------------------------------------------------------------------------------------------------


def test_the_wish_stands_in_the_one_system_message() -> None:
    wish, question = instruction(tools=False), HumanMessage("How many?")
    assert ask_for_confidence([question], tools=False) == [SystemMessage(wish), question]
    assert ask_for_confidence([SystemMessage("Be brief."), question], tools=False)[0].content == f"Be brief.\n\n{wish}"
    assert ask_for_confidence([SystemMessage(""), question], tools=False)[0].content == wish
    cached = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    [system, _] = ask_for_confidence([SystemMessage([cached]), question], tools=False)
    assert system.content == [cached, {"type": "text", "text": f"\n\n{wish}"}]
    developer = ChatMessage("Be brief.", role="developer")
    assert [message.type for message in ask_for_confidence([developer, question], tools=False)] == ["chat", "human"]
    later = ask_for_confidence([question, SystemMessage("Be brief."), question], tools=False)
    assert [message.type for message in later] == ["human", "system", "human"]


def test_prompts_are_not_changed_in_place() -> None:
    given = [SystemMessage("Be brief."), HumanMessage("How many?")]
    ask_for_confidence(given, tools=True)
    assert given[0].content == "Be brief."


def test_with_tools_it_is_told_where_the_line_stands() -> None:
    assert instruction(tools=True).startswith(instruction(tools=False))
    assert "tools" in instruction(tools=True) and "tools" not in instruction(tools=False)
