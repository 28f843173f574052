"""Where the answer is in a response."""

import re
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from langchain_reasc.answers import (
    Extractor,
    Vote,
    boxed,
    choice,
    extractor,
    json_field,
    last_number,
    matching,
    message_extractor,
    vote_of,
)
from langchain_reasc.exceptions import ConfigurationError


@pytest.mark.parametrize("spec", ["", "Boxed", "regex:"])
def test_an_unknown_name_is_refused_with_the_known_ones(spec: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(repr(spec)) + ".*boxed.*json:FIELD"):
        extractor(spec)


def test_an_invalid_pattern_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigurationError, match=r"'\(oops'.*missing"):
        extractor("regex:(oops")


def test_a_function_is_an_extractor_and_its_finds_are_written_plainly() -> None:
    def after_colon(text: str) -> str | None:
        return text.partition(":")[2] or None

    found = extractor(after_colon)
    assert (found("a: **1,000** "), found("nothing"), found.name) == ("1000", None, "after_colon")
    assert found("a: $1,000 ") == "$1,000"
    assert extractor(len)("four") == "4"  # type: ignore[arg-type]


def test_extractors_compose_from_left_to_right() -> None:
    either = json_field("n") | boxed() | last_number()
    assert [either(text) for text in ('{"n": 1} \\boxed{2} 3', "\\boxed{2} 3", "3", "")] == ["1", "2", "3", None]
    assert either.name == "json:n | boxed | number"


def test_an_extractor_passes_through_and_choices_can_be_narrowed() -> None:
    mine = choice("AB")
    assert extractor(mine) is mine
    assert (mine("(C)"), mine("(B)")) == (None, "b")
    assert isinstance(matching("x"), Extractor)


@pytest.mark.parametrize(
    ("spec", "label", "spelled"),
    [
        ("auto", " 18 dollars", "18 dollars"),
        ("auto", "$\\frac{1}{2}$", "0.5"),
        ("number", "**1,000**", "1000"),
        ("text", "18 dollars.", "18 dollars"),
        ("choice", "(B)", "b"),
        ("choice", "B", "b"),
        ("choice", "C and A", "a, c"),
        (["Spam", "ham"], "spam", "Spam"),
    ],
)
def test_a_label_is_spelled_as_answers_are(spec: Any, label: str, spelled: str) -> None:
    extract = extractor(spec)
    assert extract(spelled) == spelled
    assert extract.label(label) == spelled
    assert extract.is_same(spelled, extract.label(label))


@pytest.mark.parametrize(
    ("spec", "answer", "label", "same"),
    [
        ("auto", "18", "18 dollars", True),
        ("auto", "18 dollars", "18", True),
        ("auto", "18 euros", "18 dollars", False),
        ("auto", "500a^7", "500", False),
        ("number", "1,000 m", "1 km", True),
        ("boxed", "March 5, 2024", "2024-03-05", True),
        ("text", "Paris", "paris", True),
        ("text", "Paris", "Paris, Texas", False),
    ],
)
def test_an_answer_is_compared_with_a_label_by_form(spec: str, answer: str, label: str, same: bool) -> None:
    assert extractor(spec).is_same(answer, label) is same


def test_no_answer_is_not_that_of_a_label() -> None:
    assert not extractor("auto").is_same(None, "None")


def test_a_message_extractor_sees_and_decides_everything() -> None:
    def city(message: AIMessage) -> str | None:
        return str(message.tool_calls[0]["args"]["city"]) if message.tool_calls else None

    calls = [{"name": "weather", "args": {"city": "Köln", "days": 3}, "id": "1"}]
    extract = message_extractor(city)
    assert extract.name == "city"
    assert vote_of(AIMessage("", tool_calls=calls), extract) == Vote("Köln")
    cut = AIMessage("", tool_calls=calls, response_metadata={"finish_reason": "length"})
    assert vote_of(cut, extract) == Vote("Köln", True)
    assert vote_of(AIMessage("42"), extract) == Vote(None, why_none="no answer was found in it")
    assert message_extractor(lambda message: message.text)("A **text**.") == "A text"


def test_a_message_extractor_composes_with_others() -> None:
    declined = message_extractor(lambda message: "declined" if message.additional_kwargs.get("refusal") else None)
    extract = declined | boxed() | last_number()
    assert extract.name == "<lambda> | boxed | number"
    messages = [AIMessage("", additional_kwargs={"refusal": "no"}), *map(AIMessage, ("\\boxed{1} 2", "2", ""))]
    assert [extract(message) for message in messages] == ["declined", "1", "2", None]
