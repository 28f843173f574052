"""Where a response spells its answer, and the step before it: found by asking the extractor again."""

import time
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from langchain_reasc.answers import Vote, boxed, extractor, json_object, message_extractor, places_of, vote_of

NO_PLACE = pytest.mark.xfail(strict=True, reason="a choice is found in lower case, which the text does not contain")
SUM = "Ann has 5.\nShe buys 7, so 5 + 7 = 12.\n"


def read(text: str, spec: Any = "auto", **metadata: Any) -> tuple[str | None, str | None, str | None]:
    """What stands before the answer, the answer, and the last step."""
    extract, message = extractor(spec), AIMessage(text, response_metadata=metadata)
    found = places_of(message, extract, vote_of(message, extract))
    assert found.text == text
    step = text[slice(*found.last_step)] if found.last_step else None
    return (None, None, step) if found.answer is None else (text[: found.answer[0]], text[slice(*found.answer)], step)


@pytest.mark.parametrize(
    ("before", "answer", "after", "spec"),
    [
        (SUM + "The answer is \\boxed{", "12", "}. Check: 12 - 7 = 5, and 12 is even.", "auto"),
        (SUM + "#### ", "12", "", "auto"),
        (SUM + "The answer is ", "12 apples", ", since 12 - 7 is 5.", "auto"),
        ("<think>Is it 12? 12 or 12.</think>\nThe answer is ", "12", ".", "auto"),
        ("<think>The answer is \\boxed{12}.</think>\\boxed{", "12", "}", "boxed"),
        ("12 and 112, 512 but no 1.12: ", "12", "", "number"),
        ("The answer is ", "$\\frac{1}{2}$", ".", "auto"),
        ("In 11 years the answer is ", "1\u202f000", ".", "auto"),
        pytest.param("It is not A, B or D. The answer is (", "C", "). A is wrong.", "choice", marks=NO_PLACE),
        pytest.param("The answer is (", "B", "). ABOUT BOBBY: " + "BUBBLES " * 3, "choice", marks=NO_PLACE),
        ("答案是", "北京", "。", "auto"),
        ('{"name": "no", "ok": "', "yes", '", "why": "yes"}', "json:ok"),
        ("Result: ", '{"b": 1, "a": [2, 3]}', " as asked {", json_object()),
        ("score=", "0.7", "; score=none", r"regex:score=([\d.]+)"),
        ("", "All of it.\nReally", ".", "text"),
        ("It is ", "42", ", of 42.", lambda text: text.split()[2].strip(",")),
    ],
)
def test_the_answer_is_found_where_it_was_read(before: str, answer: str, after: str, spec: Any) -> None:
    assert read(before + answer + after, spec)[:2] == (before, answer)


@pytest.mark.parametrize("text", ["", "<think>12", "The answer is twelve of them, or so it seems to me"])
def test_without_a_place_there_is_none(text: str) -> None:
    assert read(text, "number")[1] is None


@pytest.mark.parametrize(
    ("text", "step"),
    [
        (SUM + "The answer is \\boxed{12}.", "She buys 7, so 5 + 7 = 12.\nThe answer is \\boxed{"),
        ("First 2. Then 3*4 = 12. So the answer is 12.", "Then 3*4 = 12. So the answer is "),
        ("We get 12.5 at 3 p.m. and\n\n\\[\n\\boxed{12}\n\\]", "We get 12.5 at 3 p.m. and\n\n\\[\n\\boxed{"),
        ("<think>5 + 7 = 12.</think><answer>12</answer>", "5 + 7 = 12.</think><answer>"),
        ("I think. I wonder. I cannot say.", "I wonder. I cannot say."),
        ("", None),
        ("...", None),
    ],
)
def test_the_last_step_leads_up_to_the_answer(text: str, step: str | None) -> None:
    assert read(text)[2] == step


def test_what_was_cut_off_is_read_as_such() -> None:
    text = "The answer is 12. Let me check: 12 - 7 = 5 and 1"
    assert read(text, finish_reason="length")[:2] == ("The answer is ", "12")
    assert read("so that 5 + 7 = 12", finish_reason="length")[1] is None


def test_what_reads_messages_or_calls_tells_no_place() -> None:
    message = AIMessage("It is 12")
    assert places_of(message, message_extractor(lambda one: str(one.text)), Vote("12")).answer is None
    assert places_of(message, extractor("number"), Vote("12", calls=True)).answer is None


def test_the_extractor_that_found_it_is_asked() -> None:
    spec = boxed() | extractor("number")
    assert read("It is 12, not boxed.", spec)[:2] == ("It is ", "12")
    assert read("It is \\boxed{12}, not 7.", spec)[:2] == ("It is \\boxed{", "12")


def test_a_function_that_cannot_read_another_text_tells_the_place_nonetheless() -> None:
    def strict(text: str) -> str:
        return {"12": "12"}[text.rpartition(" ")[2]]

    assert read("It is 12", strict)[:2] == ("It is ", "12")


def test_an_answer_that_stands_everywhere_is_looked_for_a_few_times_only() -> None:
    asked = []

    def always(text: str) -> str:
        asked.append(text)
        return "7"

    extract = extractor(always)
    assert places_of(AIMessage("7 " * 1000), extract, Vote("7")).answer is None
    assert len(asked) == 9


@pytest.mark.parametrize(
    "unit",
    ["Then she has 3*14=42 apples and 17 pears, which makes 59 fruits. ", ".))" * 20, "59 " * 20],
)
def test_two_thousand_tokens_take_milliseconds(unit: str) -> None:
    text = unit * 125 + "The answer is \\boxed{59}."
    taken = []
    for _ in range(5):
        begin = time.thread_time()
        assert read(text)[1] == "59"
        taken.append(time.thread_time() - begin)
    assert min(taken) < 0.05
