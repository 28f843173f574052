"""What counts as a stated confidence, what it says, and that it leaves the text."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, ChatMessage, HumanMessage, SystemMessage

from langchain_reasc.answers import extractor, vote_of
from langchain_reasc.models import (
    ask_for_confidence,
    instruction,
    output_tokens,
    read_stated_confidence,
    stated_confidence,
    without_statement,
)

STATED = {
    0.85: [
        *("Confidence: 85%", "Confidence: 85", "confidence: 0.85", "Confidence: 85/100", "Confidence: 8,5/10"),
        *("Confidence: 85 out of 100", "Confidence: 85\u202f%", "Confidence：８５％", "Confidence: 85\\%"),
        *("Confidence: 85 percent.", "**Confidence:** 85%", "> `Confidence: 85%`", "### Final confidence: 85%"),
        *("- My overall confidence: ~85%", "My confidence in this answer is 85%.", "Confidence (0-100): 85"),
        *("Confidence score: about 85%", "Confidence = 85%", "Confidence: 85% (I checked it 3 times)"),
        *("Confidence: 85%, because step 2 of 3 is unsure", "Confidence: 80-90%", "Confidence: between 80 and 90%"),
    ],
    0.8: ["Confidence: 4/5"],
    1.0: ["Confidence: 100%", "Confidence: 1.0"],
    0.0: ["Confidence: 0%"],
    0.01: ["Confidence: 1%"],
}
NO_NUMBER = [
    *("Confidence: high", "Confidence: very high indeed", "Confidence:", "Confidence: NaN", "Confidence: 1,000%"),
    *("Confidence: 101%", "Confidence: −5%", "Confidence: 12/10", "Confidence: 5/0", "Confidence: 1e2%"),
    *("Confidence: 0.8.5", "Confidence: " + "9" * 5000),
]
NO_STATEMENT = [
    "85%",
    "Confidence is key.",
    "The critical value at the 95% confidence level: 1.96",
    "They said with confidence: the number of apples that Tom has in the end is 42.",
    '{\n  "answer": 42,\n  "confidence": 0.9\n}',
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
        ("It is **42** - **Confidence:** 85%", 0.85, "It is **42**"),
        ("| 42 | Confidence: 85% |", 0.85, "| 42"),
        ("<answer>42\nConfidence: 85%</answer>", 0.85, "<answer>42\n</answer>"),
        ("<answer>42. Confidence: 85%</answer>", 0.85, "<answer>42.</answer>"),
        ("It is 42.\nConfidence: 85%\n```", 0.85, "It is 42.\n```"),
        ("Confidence: 85%. The answer is 42.", 0.85, "The answer is 42."),
        ("Asked for 'Confidence: 20%', I say 42.\nConfidence: 85%", 0.85, "Asked for 'Confidence: 20%', I say 42."),
    ],
)
def test_where_it_stands(text: str, share: float | None, left: str) -> None:
    assert stated_confidence(text) == share
    assert without_statement(text) == left


@pytest.mark.parametrize("text", ["-" * 50_000 + "Confidence", "Confidence: " * 5_000, "Confidence: " + "1-" * 20_000])
def test_odd_texts_take_no_time(text: str) -> None:
    stated_confidence(text)
    without_statement(text)


CALL = {"type": "tool_use", "id": "1", "name": "ping", "input": {}}
THINKING = {"type": "thinking", "thinking": "Confidence: 10%", "signature": "s"}
SAID, ALONE = {"type": "text", "text": "It is 42."}, {"type": "text", "text": "Confidence: 85%"}
CITED = {**SAID, "citations": [{"cited_text": "42"}]}
REFUSED = {"type": "refusal", "refusal": "No.\nConfidence: 85%"}


@pytest.mark.parametrize(
    ("content", "left", "stated"),
    [
        ([THINKING, {"type": "text", "text": "It is 42.\n\nConfidence: 85%"}, CALL], [THINKING, SAID, CALL], 0.85),
        ([SAID, ALONE], [SAID], 0.85),
        (["It is 42.", "\nConfidence: 85%"], ["It is 42."], 0.85),
        ([CITED, ALONE], [CITED], 0.85),
        ([THINKING, CALL], [THINKING, CALL], None),
        ([REFUSED], [REFUSED], None),
        ("<think>Hm.\nConfidence: 20%\n</think>It is 42.", "<think>Hm.\n</think>It is 42.", None),
        ("<think>Hm.\nConfidence: 20%\n</think>It is 42.\nConfidence: 85%", "<think>Hm.\n</think>It is 42.", 0.85),
        ("<think>Never ends.\nConfidence: 20%\n", "<think>Never ends.", None),
    ],
)
def test_blocks_and_reasoning(content: Any, left: Any, stated: float | None) -> None:
    message = AIMessage(content, id="m", response_metadata={"model_name": "m"})
    read = read_stated_confidence(message)
    assert (read.content, read.response_metadata["verbalized_confidence"]) == (left, stated)
    assert (read.id, read.response_metadata["model_name"], message.content) == ("m", "m", content)


def test_the_number_is_never_the_answer_and_its_tokens_stay_on_the_bill() -> None:
    for text in ("It is 42.\nConfidence: 85%", "So 42, with 3 left over: 42\n**Confidence:** 85/100"):
        read = read_stated_confidence(AIMessage(text))
        assert vote_of(read, extractor("auto")).answer == vote_of(read, extractor("number")).answer == "42"
        assert output_tokens(read) == output_tokens(AIMessage(text)) > 3


@pytest.mark.parametrize(
    ("text", "stated"),
    [("It is 42.\nConfidence: 8", None), ("It is 42.\nConfidence: 85%\nI ch", 0.85), ("It is", None)],
)
def test_a_response_that_was_cut_off_states_only_what_it_ended(text: str, stated: float | None) -> None:
    read = read_stated_confidence(AIMessage(text, response_metadata={"finish_reason": "length"}))
    assert read.response_metadata["verbalized_confidence"] == stated
    assert "Confidence" not in read.content


def test_the_wish_stands_in_the_one_system_message() -> None:
    wish, question = instruction(tools=False), HumanMessage("How many?")
    assert ask_for_confidence([question], tools=False) == [SystemMessage(wish), question]
    given = [SystemMessage("Be brief."), question]
    assert ask_for_confidence(given, tools=False)[0].content == f"Be brief.\n\n{wish}"
    assert given[0].content == "Be brief.", "prompts are not changed in place"
    assert ask_for_confidence([SystemMessage(""), question], tools=False)[0].content == wish
    cached = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    [system, _] = ask_for_confidence([SystemMessage([cached]), question], tools=False)
    assert system.content == [cached, {"type": "text", "text": f"\n\n{wish}"}]
    for prompt in ([ChatMessage("Be brief.", role="developer"), question], [question, given[0], question]):
        asked = ask_for_confidence(prompt, tools=True)
        assert [message.type for message in asked] == [message.type for message in prompt]
    assert instruction(tools=True).startswith(wish)
    assert "tools" in instruction(tools=True) and "tools" not in wish
