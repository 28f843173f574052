"""Responses that cast no vote, or one that would not be enough alone; and the last step that wants the answer only."""

import logging
from typing import Any

import pytest
from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage

from langchain_reasc import ReASCAnswerParser, ReASCRunnable

from .fakes import Reply, saying


def test_no_answer_anywhere_is_said_after_a_wave_and_at_the_end(runner: Any, caplog: Any) -> None:
    reasc = ReASCRunnable(model=saying(Reply("no idea")), max_samples=8)
    with caplog.at_level(logging.WARNING, "langchain_reasc"):
        result = runner.solve(reasc, "q")
    assert (result.answer, result.decision.samples) == (None, 8)
    assert any(notice.startswith("8 of 8 responses cast no vote: ") for notice in result.notices)
    [record] = caplog.records
    assert record.getMessage().startswith("4 of 4 responses cast no vote")


def test_the_parser_gives_the_answer_alone(runner: Any) -> None:
    chain = ReASCRunnable(model=saying("42")) | ReASCAnswerParser()
    assert runner.invoke(chain, "q") == "42"
    nothing = ReASCRunnable(model=saying(Reply("no idea")), max_samples=1) | ReASCAnswerParser()
    assert runner.invoke(nothing, "q") is None


def test_the_parser_says_what_it_needs() -> None:
    with pytest.raises(OutputParserException, match="put it right behind a ReASCRunnable"):
        ReASCAnswerParser().invoke(AIMessage("42"))
