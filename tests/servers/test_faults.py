"""The outcome of each fault of a server, as in the table of docs/servers.md."""

import re
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from langchain_core.messages import HumanMessage
from runnable.fakes import PROMPT_TOKENS, calibration

from langchain_reasc import ReASCRunnable
from langchain_reasc.exceptions import LogprobsUnavailable, SampleTimeout, SamplingError

from .conftest import Chat, each_client, each_client_with
from .exchange import Answer, Exchange, refuses
from .fake_server import serving
from .faults import FAULTS, RIGHT, TOKENS, drip, keep_alives

pytestmark = pytest.mark.full

TIMEOUT: Final = 0.6  # seconds that clients wait; healthy samples must arrive in time even on a busy machine
PAGE: Final = Path(__file__).parents[2] / "docs" / "servers.md"
HEADING: Final = "## What servers do wrong, and what comes of it\n"
BAD: Final = 1  # the sample that goes wrong


class Failure(NamedTuple):
    """How a sample fails: the error's type and words, the text so far, and whether it is tried again."""

    error: str
    words: str
    text: str | None = None
    again: bool = True


EITHER: Final = {
    "429": Failure("OpenAIRateLimitError", "refused with 429"),
    "429 with Retry-After": Failure("OpenAIRateLimitError", "refused with 429"),
    "5xx": Failure("OpenAIAPIError", "refused with 503"),
    "no first token": Failure("OpenAITimeoutError", "timed out"),
}
IN_THE_MIDDLE: Final = {
    "no second token": Failure("OpenAITimeoutError", "timed out", "it"),
    "cut stream": Failure("OpenAIConnectionError", "Connection error", "it"),
    "stream ended early": Failure("SamplingError", "finish.reason", "it is 4"),
    "finish reason null": Failure("SamplingError", "finish.reason", "it is 4"),
    "finish reason error": Failure("SamplingError", "'error'", "it is"),
    "malformed JSON": Failure("JSONDecodeError", "line 1 column", "it"),
    "error event": Failure("APIError", "CUDA out of memory", "it"),
    "empty choices": Failure("SamplingError", "finish.reason", ""),
}
NO_STREAM: Final = Failure("SamplingError", "without a single event of a stream; is that the address")
NO_CHUNKS: Final = Failure("ValueError", "No generation chunks", again=False)
FAILURES: Final[dict[str, dict[str, Failure]]] = {
    "ChatOpenAI": {
        **EITHER,
        "usage in words": Failure("ValidationError", "valid integer", "it is 42", again=False),
        **{name: failure._replace(again=False) for name, failure in IN_THE_MIDDLE.items()},
        **dict.fromkeys(("HTML", "unstreamed reply"), NO_CHUNKS),
    },
    "ChatOpenAICompatible": {**EITHER, **IN_THE_MIDDLE, "HTML": NO_STREAM},
}
NO_VOTE: Final = "content filter"
NO_SCORE: Final = "half the logprobs"
HARMLESS: Final = [name for name in FAULTS if name not in {NO_VOTE, NO_SCORE, *FAILURES["ChatOpenAI"]}]


def sample_meets(fault: Answer, *, attempts: int = 99) -> Any:
    """Serve a fault to the first attempts of sample 1, and the right answer to all others."""

    async def behave(exchange: Exchange) -> None:
        wrong = exchange.sample == BAD and exchange.attempt < attempts
        await (fault if wrong else RIGHT)(exchange)

    return serving(behave)


def reasc_over(model: Any, **options: Any) -> ReASCRunnable:
    """Return a runnable that reads confidences. Every vote weighs 1, so four decide."""
    return ReASCRunnable(model=model, calibration=calibration(mean=3.0), allow_fingerprint_mismatch=True, **options)


@each_client_with("name", FAILURES)
def test_a_fault_that_costs_the_sample_costs_only_that(name: str, runner: Any, chat: Chat) -> None:
    with sample_meets(FAULTS[name]) as served:
        result = runner.solve(reasc_over(chat(served.url, timeout=TIMEOUT)), "q")
    assert (result.answer, result.decision.samples, result.decision.reason) == ("42", 4, "evidence")
    lost, failure = result.responses[BAD], FAILURES[chat.name][name]
    assert (lost.status, lost.used, lost.weight) == ("failed", False, 0.0)
    assert type(lost.error).__name__ == failure.error
    assert re.search(failure.words, str(lost.error))
    assert (lost.message.text if lost.message else None) == failure.text
    assert result.failures == (lost.error,)
    assert any(f"1 of {len(result.responses)} samples" in notice for notice in result.notices)
    assert result.message.response_metadata["reasc"]["failed"] == 1


@each_client_with("name", HARMLESS)
def test_a_fault_that_loses_nothing_is_no_failure(name: str, runner: Any, chat: Chat) -> None:
    with sample_meets(FAULTS[name]) as served:
        result = runner.solve(reasc_over(chat(served.url)), "q")
    assert (result.answer, result.decision.samples, result.failures) == ("42", 4, ())
    odd = result.responses[BAD]
    assert (odd.status, odd.answer, odd.score, odd.weight) == ("complete", "42", 1.25, 1.0)
    assert odd.message.text.endswith("it is 42")
    if name.startswith("usage"):
        assert result.usage.estimated
        assert (result.usage.input_tokens, result.usage.output_tokens) == (4 * PROMPT_TOKENS, 4 * TOKENS)


@each_client
def test_a_response_without_text_costs_tokens_and_casts_no_vote(runner: Any, chat: Chat) -> None:
    with sample_meets(FAULTS[NO_VOTE]) as served:
        result = runner.solve(reasc_over(chat(served.url)), "q")
    assert (result.answer, result.decision.samples) == ("42", 5)  # four votes and an abstention
    silent = result.responses[BAD]
    assert (silent.status, silent.answer, silent.score, silent.weight) == ("complete", None, None, 0.0)


@each_client_with("name", {"ChatOpenAI": ["429"], "ChatOpenAICompatible": ["stream ended early"]})
def test_nothing_but_faults_is_one_error_that_lists_them(name: str, runner: Any, chat: Chat) -> None:
    with serving(FAULTS[name]) as served, pytest.raises(SamplingError) as caught:
        runner.solve(reasc_over(chat(served.url)), "q")
    assert len(served.exchanges) == 4, "after one wave of nothing but failures no more is tried"
    failure = FAILURES[chat.name][name]
    assert re.search(failure.words, str(caught.value))
    assert [type(error).__name__ for error in caught.value.failures] == [failure.error] * 4


# ChatOpenAI's tries are openai's own, with pauses of half a second.
PASSING: Final = {
    "ChatOpenAI": ["no first token"],
    "ChatOpenAICompatible": [name for name, failure in FAILURES["ChatOpenAICompatible"].items() if failure.again],
}


@each_client_with("name", PASSING)
def test_a_fault_that_passes_is_asked_again(name: str, runner: Any, chat: Chat) -> None:
    with sample_meets(FAULTS[name], attempts=1) as served:
        result = runner.solve(reasc_over(chat(served.url, timeout=TIMEOUT, max_retries=2)), "q")
        assert sum(exchange.sample == BAD for exchange in served.exchanges) == 2
    assert (result.answer, result.decision.samples, result.failures) == ("42", 4, ())
    assert result.responses[BAD].score == 1.25
    assert result.usage.output_tokens == 4 * TOKENS, "the lost attempt had brought no token"


@each_client
def test_the_server_says_when_to_ask_again(runner: Any, chat: Chat) -> None:
    came: list[float] = []

    async def behave(exchange: Exchange) -> None:
        came.append(time.monotonic())
        await (RIGHT if exchange.attempt else FAULTS["429 with Retry-After"])(exchange)

    with serving(behave) as served:
        runner.invoke(ReASCRunnable(model=chat(served.url, max_retries=2), max_samples=1), "q")
    first, second = came
    assert second - first >= 0.5


@each_client
def test_what_does_not_pass_is_not_asked_again(runner: Any, chat: Chat) -> None:
    with serving(refuses(400)) as served, pytest.raises(SamplingError, match="refused with 400"):
        runner.invoke(ReASCRunnable(model=chat(served.url, max_retries=2), concurrency=2), "q")
    assert len(served.exchanges) == 2


@each_client
def test_half_the_logprobs_are_none(runner: Any, chat: Chat) -> None:
    with sample_meets(FAULTS[NO_SCORE]) as served:
        model = chat(served.url)
        with pytest.raises(LogprobsUnavailable):
            runner.invoke(reasc_over(model), "q")
        result = runner.solve(reasc_over(model, on_missing_confidence="count"), "q")
    assert (result.answer, result.decision.samples, result.failures) == ("42", 4, ())
    odd = result.responses[BAD]
    assert (odd.answer, odd.score, odd.weight) == ("42", None, 1.0)
    assert any("1 of 4 responses" in notice for notice in result.notices), result.notices


@each_client_with("slow", [drip(0.1), keep_alives])
def test_a_response_without_end_is_cut_off_by_its_time_limit(runner: Any, chat: Chat, slow: Answer) -> None:
    with sample_meets(slow) as served:
        result = runner.solve(reasc_over(chat(served.url), sample_timeout=TIMEOUT), "q")
    assert result.answer == "42"
    assert isinstance(result.responses[BAD].error, SampleTimeout)


@each_client
def test_a_chat_model_with_n_is_asked_for_one_choice_per_sample(runner: Any, chat: Chat) -> None:
    with serving(RIGHT) as served:
        result = runner.solve(reasc_over(chat(served.url, n=3)), "q")
        assert {request.get("n") or 1 for request in served.requests} == {1}
    assert (result.answer, result.decision.samples) == ("42", 4)


@each_client
def test_fewer_choices_than_asked_for_are_no_more_than_came(runner: Any, chat: Chat) -> None:
    async def behave(exchange: Exchange) -> None:
        exchange.body["n"] -= 1
        await RIGHT(exchange)

    with serving(behave) as served:
        model = chat(served.url, n=3)
        [choices] = runner.call(
            model.agenerate if runner.is_async else model.generate, [[HumanMessage("q")]]
        ).generations
    assert [choice.text for choice in choices] == ["it is 42"] * 2


def test_each_fault_has_its_row() -> None:
    section = PAGE.read_text(encoding="utf-8").split(HEADING)[1].split("\n#")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    cells = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    rows = {first.split(" (")[0]: others for first, *others in cells}
    for name in FAULTS:
        theirs, ours = rows[name]
        for client, said in (("ChatOpenAI", theirs), ("ChatOpenAICompatible", theirs if ours == "likewise" else ours)):
            if failure := FAILURES[client].get(name):
                outcome = "asked again" if failure.again else "failed"
            else:
                outcome = {NO_VOTE: "no vote", NO_SCORE: "no confidence"}.get(name, "no harm")
            assert said.startswith(outcome), (name, client)
