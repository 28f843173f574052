"""Tokens are counted from what arrived where a server's usage is missing or cannot be true."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage

from langchain_reasc.models import is_estimated, output_tokens
from langchain_reasc.runnable.account import failure_notices
from langchain_reasc.runnable.result import Usage
from langchain_reasc.sampling import Sample
from models.logprobs.payloads import SHAPES, TEXT


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
    bill = Usage.of([Sample(at, message) for at, message in enumerate(messages)], used=[0])
    assert (bill.input_tokens, bill.output_tokens, bill.unused_output_tokens, bill.estimated) == (21, 7, 4, True)


def test_requests_made_again_are_told_with_what_was_lost() -> None:
    attempts = [{"server": "a", "error": "cut", "received_tokens": 7}, {"server": "b", "error": "cut"}]
    moved = AIMessage("it is 1", response_metadata={"failed_attempts": attempts})
    samples = [Sample(0, moved), Sample(1, None, "failed", RuntimeError("gone")), Sample(2, AIMessage("it is 1"))]
    assert failure_notices(samples) == [
        "1 of 3 samples failed",
        "2 requests failed and were made again; 7 tokens that had come were lost",
    ]
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
        spent = Usage.of([Sample(0, message), Sample(1, AIMessage("7", usage_metadata=usage(5, 2)))], {0, 1})
        assert (spent.bill["input_tokens"], spent.bill["output_tokens"]) == (10, 5) and spent.estimated


def test_details_that_cannot_be_true_are_left_out() -> None:
    told = usage(7, 3) | {
        "total_tokens": -4,
        "input_token_details": {"cache_read": 10**30, "cache_creation": 2},
        "output_token_details": {"reasoning": -1},
    }
    bill = Usage.of([Sample(0, AIMessage("7", usage_metadata=told))], {0}).bill
    assert bill["total_tokens"] == 10 and bill["input_token_details"] == {"cache_creation": 2}
    assert not bill.get("output_token_details")
