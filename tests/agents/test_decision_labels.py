"""Which label a response names: never another than the one it means, whatever the labels look like."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage

from langchain_reasc.agents.decision_prompt import ANY_LABEL, Labels
from langchain_reasc.answers import vote_of
from langchain_reasc.exceptions import ConfigurationError

TEAMS = ("billing", "Technical Support", "sales", "not sales", "Übergabe", "売上")


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("They ask for an invoice.\n<answer>billing</answer>", "billing"),
        ("<ANSWER>\n  technical   support\n</ANSWER>", "Technical Support"),
        ("<answer>**Billing.**</answer>", "billing"),
        ("<answer>„ÜBERGABE“</answer>", "Übergabe"),
        ("<answer>売上</answer>", "売上"),
        ("First I wrote <answer>sales</answer>, but it is <answer>billing</answer>", "billing"),
        ("<answer>billing", "billing"),  # the stop string took the rest
        ("So it is \\boxed{billing}", "billing"),
        ("The answer is sales, not billing.", "sales"),
        ("The answer is not sales.", "not sales"),
        ("The answer is not billing.", None),
        ("The answer is sales or billing.", None),
        ("Not sales, as nothing is sold.\n\nbilling", "billing"),
        ("Answer: **billing**", "billing"),
        ("<answer>salesman</answer>", None),
        ("<answer>refunds</answer>\nbilling", None),
        ("<answer></answer>", None),
        ("It has to do with billing and sales", None),
    ],
)
def test_a_response_names_a_label_or_none(text: str, label: str | None) -> None:
    assert Labels(TEAMS).named(text) == label


@pytest.mark.parametrize(
    ("names", "said", "label"),
    [
        (("A", "a"), "a", "a"),
        (("A", "a"), '"a"', None),  # which of them?
        (("yes", "Yes!", "YES"), "Yes!", "Yes!"),
        (("2", "²"), "²", "²"),
        (("C", "C++", "C#"), "c++", "C++"),
        (("straße", "gasse"), "STRASSE", "straße"),
        (("$5", "5", "5.0"), "5.0", "5.0"),
        (("<b>", "</b>"), "</b>", "</b>"),
    ],
)
def test_labels_that_look_alike_are_told_apart_or_not_taken(
    names: tuple[str, ...], said: str, label: str | None
) -> None:
    assert Labels(names).named(f"<answer>{said}</answer>") == label


@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=30, unique=True), st.text(max_size=60))
def test_every_label_that_is_taken_is_named_as_it_stands(names: list[str], thought: str) -> None:
    try:
        labels = Labels(names)
    except ConfigurationError:
        assert any(not name.strip() or "answer>" in name.lower() for name in names)
        return
    for name in names:
        assert labels.named(f"{thought}\n<answer>{name}</answer>") == name
    assert labels.named(thought) in (None, *names)


@pytest.mark.parametrize("names", [(), ("a", " "), ("a", "</answer>")])
def test_a_label_that_nobody_can_name_is_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError, match="label"):
        Labels(names)


@pytest.mark.parametrize(
    ("message", "label"),
    [
        ({"content": "<think><answer>sales</answer></think>It is clear.\n<answer>billing</answer>"}, "billing"),
        ({"content": "<think>perhaps <answer>sales</answer>"}, None),
        ({"content": [{"type": "reasoning", "reasoning": "<answer>sales</answer>"}]}, None),
        ({"content": "", "tool_calls": [{"name": "billing", "args": {}, "id": "1"}]}, None),
        ({"content": "<answer>sales</answer>", "tool_calls": [{"name": "billing", "args": {}, "id": "1"}]}, "sales"),
        ({"content": "<answer>sales</answer>", "additional_kwargs": {"refusal": "I cannot"}}, None),
        ({"content": "<answer>sales</answer>", "response_metadata": {"finish_reason": "content_filter"}}, None),
        ({"content": "<answer>sales", "response_metadata": {"finish_reason": "length"}}, None),
    ],
)
def test_the_vote_is_the_whole_messages(message: dict[str, Any], label: str | None) -> None:
    assert vote_of(AIMessage(**message), Labels(TEAMS).extractor).answer == label


def test_a_calibration_reads_what_is_marked_whatever_the_labels_are() -> None:
    said = vote_of(AIMessage("So:\n<answer> **Not Sales** </answer>"), ANY_LABEL)
    assert said.answer == ANY_LABEL.label("not sales")
    assert vote_of(AIMessage("It comes down to 42"), ANY_LABEL).answer is None
    assert vote_of(AIMessage("<answer>sa", response_metadata={"finish_reason": "length"}), ANY_LABEL).answer is None


def test_a_long_response_is_read_in_no_time() -> None:
    """Were it read again from each opening, this would take minutes."""
    assert Labels(TEAMS).named("<answer>a" * 100_000 + "b" * 1_000_000) is None
    assert Labels(TEAMS).named("<answer>" + "</answe" * 100_000) is None
