"""What comes of each thing a server can do wrong: row by row the table in backends/README.md."""

import re
import time
from dataclasses import dataclass
from typing import Any, Final

import pytest
from runnable.fakes import calibration

from langchain_reasc import ReASCRunnable
from langchain_reasc.exceptions import SamplingError

from .conftest import Chat
from .fault_server import Exchange, answer, fault_server
from .faults import FAULTS, TOKENS, status

TIMEOUT: Final = 1.5  # seconds the clients wait
BAD: Final = 1  # the sample that goes wrong


@dataclass(frozen=True)
class Outcome:
    """What becomes of the sample: its error's type and words, or None where it is as good as any."""

    error: str | None = None
    words: str = ""
    text: str | None = None  # what had come of it


FAILS: Final = {
    "429": Outcome("OpenAIRateLimitError", "the server said 429"),
    "429 with Retry-After": Outcome("OpenAIRateLimitError", "the server said 429"),
    "500": Outcome("OpenAIAPIError", "the server said 500"),
    "502": Outcome("OpenAIAPIError", "the server said 502"),
    "503": Outcome("OpenAIAPIError", "the server said 503"),
    "no first token": Outcome("OpenAITimeoutError", "timed out"),
    "no second token": Outcome("OpenAITimeoutError", "timed out", "it"),
    "cut stream": Outcome("OpenAIConnectionError", "Connection error", "it"),
    "stream ended early": Outcome("SamplingError", "without a finish reason", "it is 4"),
    "malformed JSON": Outcome("JSONDecodeError", "line 1 column", "it"),
    "HTML": Outcome("ValueError", "No generation chunks"),
    "unstreamed reply": Outcome("ValueError", "No generation chunks"),
    "error event": Outcome("APIError", "CUDA out of memory", "it"),
    "usage in words": Outcome("ValidationError", "valid integer", "it is 42"),
}
RETRIED: Final = ("429", "429 with Retry-After", "500", "502", "503", "no first token")
NO_VOTE: Final = ("content filter", "empty choices")
WORKS: Final = [name for name in FAULTS if name not in (*FAILS, *NO_VOTE, "half the logprobs")]


def with_fault(name: str, *, attempts: int = 99) -> Any:
    """A server on which sample 1 goes wrong, so many times."""

    def behave(exchange: Exchange) -> None:
        wrong = exchange.sample == BAD and exchange.attempt < attempts
        (FAULTS[name] if wrong else answer)(exchange)

    return fault_server(behave)


def reasc_over(model: Any, **options: Any) -> ReASCRunnable:
    """Reads confidences; every answer weighs 1, so four decide."""
    return ReASCRunnable(model=model, calibration=calibration(mean=3.0), allow_fingerprint_mismatch=True, **options)


@pytest.mark.parametrize("name", FAILS)
def test_a_fault_that_costs_the_sample_costs_only_that(name: str, runner: Any, chat: Chat) -> None:
    with with_fault(name) as served:
        result = runner.solve(reasc_over(chat(served.url, timeout=TIMEOUT)), "q")
    assert (result.answer, result.decision.samples, result.decision.reason) == ("42", 4, "evidence")
    lost, outcome = result.responses[BAD], FAILS[name]
    assert (lost.status, lost.used, lost.weight) == ("failed", False, 0.0)
    assert type(lost.error).__name__ == outcome.error
    assert re.search(outcome.words, str(lost.error))
    assert (lost.message.text if lost.message else None) == outcome.text
    assert result.failures == (lost.error,)
    assert f"1 of {len(result.responses)} samples failed" in result.notices
    assert result.message.response_metadata["reasc"]["failed"] == 1


@pytest.mark.parametrize("name", WORKS)
def test_a_fault_that_loses_nothing_is_no_failure(name: str, runner: Any, chat: Chat) -> None:
    with with_fault(name) as served:
        result = runner.solve(reasc_over(chat(served.url, timeout=TIMEOUT)), "q")
    assert (result.answer, result.decision.samples, result.failures) == ("42", 4, ())
    odd = result.responses[BAD]
    assert (odd.status, odd.answer, odd.score, odd.weight) == ("complete", "42", 1.25, 1.0)
    assert odd.message.text.endswith("it is 42")


@pytest.mark.parametrize("name", NO_VOTE)
def test_a_response_without_text_costs_tokens_and_casts_no_vote(name: str, runner: Any, chat: Chat) -> None:
    with with_fault(name) as served:
        result = runner.solve(reasc_over(chat(served.url)), "q")
    assert (result.answer, result.decision.samples) == ("42", 5)  # four votes and an abstention
    silent = result.responses[BAD]
    assert (silent.status, silent.answer, silent.score, silent.weight) == ("complete", None, None, 0.0)


@pytest.mark.parametrize("name", sorted(set(FAILS) - {"no first token", "no second token"}))
def test_nothing_but_faults_is_one_error_that_lists_them(name: str, runner: Any, chat: Chat) -> None:
    with fault_server(FAULTS[name]) as served, pytest.raises(SamplingError) as caught:
        runner.solve(reasc_over(chat(served.url)), "q")
    assert len(served.exchanges) == 4, "after one wave of nothing but failures no more is tried"
    assert re.search(FAILS[name].words, str(caught.value))
    assert [type(error).__name__ for error in caught.value.failures] == [FAILS[name].error] * 4


def test_one_failure_alone_may_be_bad_luck(runner: Any, chat: Chat) -> None:
    def behave(exchange: Exchange) -> None:
        (FAULTS["stream ended early"] if exchange.sample == 0 else answer)(exchange)

    made = calibration(mean=3.0, gate=100.0)  # it may open at the first response, so that one goes alone
    with fault_server(behave) as served:
        reasc = ReASCRunnable(model=chat(served.url), calibration=made, allow_fingerprint_mismatch=True)
        result = runner.solve(reasc, "q")
    assert (result.answer, result.responses[0].status) == ("42", "failed")


@pytest.mark.parametrize("name", RETRIED)
def test_a_fault_that_passes_is_asked_again(name: str, runner: Any, chat: Chat) -> None:
    with with_fault(name, attempts=1) as served:
        result = runner.solve(reasc_over(chat(served.url, timeout=TIMEOUT, max_retries=2)), "q")
        assert served.attempts(BAD) == 2
    assert (result.answer, result.decision.samples, result.failures) == ("42", 4, ())
    assert result.responses[BAD].score == 1.25
    assert result.usage.output_tokens == 4 * TOKENS, "the lost attempt had brought no token"


def test_the_server_says_when_to_ask_again(runner: Any, chat: Chat) -> None:
    came: list[float] = []

    def behave(exchange: Exchange) -> None:
        came.append(time.monotonic())
        (answer if exchange.attempt else FAULTS["429 with Retry-After"])(exchange)

    with fault_server(behave) as served:
        runner.invoke(ReASCRunnable(model=chat(served.url, max_retries=2), max_samples=1), "q")
    first, second = came
    assert second - first >= 1.0


def test_what_does_not_pass_is_not_asked_again(runner: Any, chat: Chat) -> None:
    with fault_server(status(400)) as served, pytest.raises(SamplingError, match="the server said 400"):
        runner.invoke(ReASCRunnable(model=chat(served.url, max_retries=2), concurrency=2), "q")
    assert len(served.exchanges) == 2
