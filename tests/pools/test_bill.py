"""Bills: every token that was paid for, once."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage

from langchain_reasc.exceptions import ContextOverflowError
from langchain_reasc.pools.bill import Bill, Tally
from langchain_reasc.pools.pool import PoolQuestion, PoolResponse
from langchain_reasc.pools.prices import Price
from langchain_reasc.sampling import Sample

DETAILED: Any = {
    "input_tokens": 100,
    "output_tokens": 50,
    "total_tokens": 150,
    "input_token_details": {"cache_read": 60, "cache_creation": 10, "audio": 3},
    "output_token_details": {"reasoning": 40},
}


def plain(prompt: int, completion: int) -> Any:
    return {"input_tokens": prompt, "output_tokens": completion, "total_tokens": prompt + completion}


def sample(index: int, usage: Any, *, text: str = "twelve chars", **more: Any) -> Sample:
    return Sample(index, AIMessage(text, usage_metadata=usage, response_metadata=more.pop("metadata", {})), **more)


def test_what_usage_tells_is_what_is_billed() -> None:
    bill = Bill.of_samples([sample(0, DETAILED), sample(1, plain(100, 30))])
    assert bill == Bill(responses=2, prompt=200, completion=80, cached=60, cache_written=10, reasoning=40)
    assert bill.tokens == 280


def test_each_kind_of_token_has_its_price_or_that_of_what_it_is_part_of() -> None:
    bill = Bill.of_samples([sample(0, DETAILED)])
    price = Price(input=10.0, output=100.0, cached=1.0, cache_write=20.0, reasoning=50.0)
    assert price.of(bill) == pytest.approx((30 * 10 + 60 * 1 + 10 * 20 + 10 * 100 + 40 * 50) / 1e6)
    assert Price(input=10.0, output=100.0).of(bill) == pytest.approx((100 * 10 + 50 * 100) / 1e6)


def test_without_usage_tokens_are_estimated_and_that_is_told() -> None:
    bill = Bill.of_samples([sample(0, plain(100, 5)), sample(1, None)])
    assert bill == Bill(responses=2, prompt=200, completion=5 + 3, without_usage=1)
    alone = Bill.of_samples([sample(0, None)])
    assert alone == Bill(responses=1, completion=3, without_usage=1)
    absurd = Bill.of_samples([sample(0, plain(100, 0))])  # a text of no token
    assert absurd == Bill(responses=1, completion=3, without_usage=1)


def test_what_failed_counts_as_far_as_it_came() -> None:
    failed = Sample(0, None, "failed", ConnectionError("gone"))
    partial = sample(1, None, status="failed", error=ConnectionError("gone"))
    retried = sample(2, plain(10, 5), metadata={"failed_attempts": [{"error": "gone", "received_tokens": 7}]})
    bill = Bill.of_samples([failed, partial, retried])
    assert bill == Bill(responses=1, prompt=10, completion=5 + 7 + 3, failed=3, lost=7 + 3)


def test_what_does_not_fit_the_context_costs_nothing() -> None:
    assert Bill.of_samples([Sample(0, None, "failed", ContextOverflowError("too long"))]) == Bill()


def test_of_what_a_pool_holds() -> None:
    responses = (PoolResponse("5", 50, prompt_tokens=100), PoolResponse("5", 8), PoolResponse(None, 0, prompt_tokens=0))
    question = PoolQuestion("q", ("5",), responses)
    assert Bill.of_question(question) == Bill(responses=3, prompt=200, completion=58, without_usage=1)
    assert Bill.of_question(question, [DETAILED, None, None]).reasoning == 40


def test_a_tally_keeps_the_average_of_each_question() -> None:
    tally = Tally()
    tally.add("a", Bill(responses=4, prompt=40, completion=100))
    tally.add("b", Bill(failed=2))
    tally.add("c", Bill(responses=2, completion=10, without_usage=1))
    assert tally.bill == Bill(responses=6, prompt=40, completion=110, failed=2, without_usage=1)
    assert [(cost.id, cost.prompt, cost.completion) for cost in tally.costs] == [("a", 10, 25), ("c", None, 5)]
