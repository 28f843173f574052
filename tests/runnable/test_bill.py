"""What was paid for: once in the bill, once in every handler's count, and no more in the winning message than asked."""

import json
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.outputs import ChatGenerationChunk
from models.logprobs.payloads import SHAPES, TEXT

from langchain_reasc import Cap, ReASCRunnable, register_integration, register_reader
from langchain_reasc.models import Integration, Token

from .fakes import PROMPT_TOKENS, TOP_K, Reply, Scripted, Unforeseen, calibration, saying

pytestmark = pytest.mark.sync_only


class Asked(Scripted):
    """A model with OpenAI's fields, which returns logprobs only when it is asked for them."""

    logprobs: bool | None = None
    top_logprobs: int | None = None

    def _chunk(self, reply: Reply, token: str, key: tuple[str, int]) -> ChatGenerationChunk:
        chunk = super()._chunk(reply, token, key)
        if not (self.logprobs or self.log.kwargs[0].get("logprobs")):
            chunk.message.response_metadata = {}
        return chunk


register_integration(f"{Asked.__module__}.Asked")(lambda model: Integration())
CALIBRATED = calibration(mean=9.0, fingerprint={})
KEPT = {"finish_reason", "model_name", "request_id", "reasc"}


def asked(**fields: Any) -> Asked:
    return Asked(script=lambda question, index: Reply(), **fields)


def test_logprobs_that_only_reasc_asked_for_stay_out_of_the_message(runner: Any) -> None:
    result = runner.solve(ReASCRunnable(model=asked(), calibration=CALIBRATED), "q")
    assert "logprobs" not in result.message.response_metadata
    assert all(response.message.response_metadata["logprobs"] for response in result.responses)
    assert len(json.dumps(result.message.response_metadata)) < 1000


def test_no_logprobs_are_asked_for_that_the_rule_does_not_read(runner: Any) -> None:
    """Counting votes under a calibration whose measure deserves no trust costs no logprobs."""
    weak = calibration(mean=9.0, fingerprint={}, fallback="the score does not separate right from wrong")
    result = runner.solve(ReASCRunnable(model=asked(), calibration=weak), "q")
    assert not any("logprobs" in response.message.response_metadata for response in result.responses)
    paper = runner.solve(ReASCRunnable(model=asked(), calibration=weak, rule=weak.as_in_paper().rule()), "q")
    assert all("logprobs" in response.message.response_metadata for response in paper.responses)


@register_reader("steps")
def from_steps(metadata: Mapping[str, Any]) -> list[Token]:
    return [Token(None, step, (step, -5.0)) for step in metadata["steps"]]


@pytest.mark.parametrize("shape", [{"steps": [-0.5, -1.0]}, *SHAPES.values()], ids=["of one's own", *SHAPES])
def test_no_shape_of_logprobs_stays_in_the_message(runner: Any, shape: dict[str, Any]) -> None:
    model = saying(Reply(TEXT, logprob=None, metadata={**shape, "request_id": "r"}))
    result = runner.solve(ReASCRunnable(model=model, calibration=CALIBRATED), "q")
    assert result.responses[0].score is not None
    assert result.message.response_metadata.keys() - {"avg_logprobs"} == KEPT


@pytest.mark.parametrize("how", ["field", "binding", "call"])
def test_logprobs_that_the_caller_asked_for_are_kept(runner: Any, how: str) -> None:
    model: Any = asked(logprobs=True) if how == "field" else asked()
    reasc = ReASCRunnable(model=model.bind(logprobs=True) if how == "binding" else model, calibration=CALIBRATED)
    message = runner.invoke(reasc, "q", **({"logprobs": True} if how == "call" else {}))
    assert message.response_metadata["logprobs"]["content"]


def test_what_providers_tell_in_detail_is_added_up(runner: Any) -> None:
    def told(times: int) -> dict[str, Any]:
        return {
            **{"input_tokens": 7 * times, "output_tokens": 9 * times, "total_tokens": 16 * times},
            "input_token_details": {"cache_read": 2 * times, "cache_creation": 3 * times},
            "output_token_details": {"reasoning": 5 * times},
        }

    message = runner.invoke(ReASCRunnable(model=saying(Reply(usage=told(1))), rule=Cap(4)), "q")
    assert message.usage_metadata == told(4)


def cutting(go: threading.Event) -> tuple[Scripted, Any]:
    """A model whose sample 4 is cut off in the middle, and what lets it begin."""
    model = saying("1", "1", "1", "1", Reply("one two three", endless=True, opens=go, wait_at=2))
    return model, lambda _, decision: decision.stop and go.set()


def test_a_cancelled_sample_counts_once_in_every_handler_and_keeps_its_words(runner: Any, runs: Any) -> None:
    usage = UsageMetadataCallbackHandler()
    model, let_go = cutting(threading.Event())
    reasc = ReASCRunnable(model=model, rule=Unforeseen(), concurrency=5)
    result = runner.solve(reasc, "q", {"callbacks": [usage, runs]}, on_response=let_go)
    assert result.responses[4].status == "cancelled"
    [counted] = usage.usage_metadata.values()
    bill = result.message.usage_metadata
    assert (counted["input_tokens"], counted["output_tokens"]) == (bill["input_tokens"], bill["output_tokens"])
    assert bill["input_tokens"] == 5 * PROMPT_TOKENS
    assert list(runs.ended.values()).count("error") == 0
    assert result.usage.estimated
    assert result.message.response_metadata["reasc"]["tokens"]["estimated"] is True
    cut = result.responses[4].message
    assert cut.text.startswith("one")
    assert cut.response_metadata["finish_reason"] == "cancelled"
    assert cut.response_metadata["usage_estimated"] is True


def test_a_first_sample_of_a_batch_that_failed_is_paid_for_and_drawn_again(runner: Any) -> None:
    fails = iter([True])

    def script(question: str, index: int) -> Reply:
        if index == 0 and next(fails, False):
            return Reply("half of this", error=ConnectionError("down"))
        return Reply("it is 1")

    reasc = ReASCRunnable(model=Scripted(script=script), calibration="mixture", confidence=TOP_K, max_samples=2)
    [message] = runner.batch(reasc, ["q"])
    account = message.response_metadata["reasc"]
    assert (account["failed"], account["tokens"]["unused_output"], account["tokens"]["estimated"]) == (0, 3, True)
    assert message.usage_metadata["input_tokens"] == 3 * PROMPT_TOKENS
