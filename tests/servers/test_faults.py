"""What comes of each thing a server can do wrong: row by row the table in backends/README.md."""

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from backends.llama_cpp.faces import AsyncFace, SyncFace
from langchain_core.messages import HumanMessage
from runnable.fakes import PROMPT_TOKENS, calibration

from langchain_reasc import ReASCRunnable
from langchain_reasc.exceptions import LogprobsUnavailable, SampleTimeout, SamplingError

from .conftest import Chat
from .exchange import Exchange, refuses
from .fake_server import serving
from .faults import FAULTS, RIGHT, TOKENS, drip

TIMEOUT: Final = 1.0  # seconds the clients wait; on a busy machine too, what is well must come in time
README: Final = Path(__file__).parents[2] / "backends" / "README.md"
HEADING: Final = "### What servers do wrong, and what comes of it\n"
BAD: Final = 1  # the sample that goes wrong


@dataclass(frozen=True)
class Failure:
    """What a sample fails with: the error's type and words, and what had come of its text."""

    error: str
    words: str
    text: str | None = None


NOTHING_CAME: Final = Failure("ValueError", "No generation chunks")
NO_STREAM: Final = Failure("SamplingError", "without a single event of a stream; is that the address")
SILENT: Final = Failure("SamplingError", "before the response had a finish_reason", "")
EVERYWHERE: Final = {
    "429": Failure("OpenAIRateLimitError", "refused with 429"),
    "429 with Retry-After": Failure("OpenAIRateLimitError", "refused with 429"),
    "500": Failure("OpenAIAPIError", "refused with 500"),
    "502": Failure("OpenAIAPIError", "refused with 502"),
    "503": Failure("OpenAIAPIError", "refused with 503"),
    "no first token": Failure("OpenAITimeoutError", "timed out"),
    "no second token": Failure("OpenAITimeoutError", "timed out", "it"),
    "cut stream": Failure("OpenAIConnectionError", "Connection error", "it"),
    "stream ended early": Failure("SamplingError", "finish.reason", "it is 4"),
    "malformed JSON": Failure("JSONDecodeError", "line 1 column", "it"),
    "error event": Failure("APIError", "CUDA out of memory", "it"),
    "usage in words": Failure("ValidationError", "valid integer", "it is 42"),
}
FAILURES: Final[dict[str, dict[str, Failure]]] = {
    "ChatOpenAI": {
        **EVERYWHERE,
        "HTML": NOTHING_CAME,
        "unstreamed reply": NOTHING_CAME,
        "empty choices": Failure("SamplingError", "finish.reason", ""),
    },
    "ChatOpenAICompatible": {**EVERYWHERE, "HTML": NO_STREAM, "unstreamed reply": NO_STREAM, "empty choices": SILENT},
}
PASSING: Final = {"429", "500", "502", "503", "no first token"}
ASKED_AGAIN: Final[dict[str, set[str]]] = {
    "ChatOpenAI": PASSING,
    "ChatOpenAICompatible": PASSING
    | {"no second token", "cut stream", "stream ended early", "malformed JSON", "error event", "empty choices"}
    | {"HTML", "unstreamed reply"},
}
NO_VOTE: Final = {"content filter", "empty choices"}
NO_SCORE: Final = {"half the logprobs"}


def cases(faults: Mapping[str, Iterable[str]]) -> pytest.MarkDecorator:
    """A test for each client and each of its faults."""
    pairs = [(client, name) for client, names in faults.items() for name in sorted(names)]
    return pytest.mark.parametrize(("chat", "name"), pairs, indirect=["chat"])


def with_fault(name: str, *, attempts: int = 99) -> Any:
    """A server on which sample 1 goes wrong, so many times."""

    async def behave(exchange: Exchange) -> None:
        wrong = exchange.sample == BAD and exchange.attempt < attempts
        await (FAULTS[name] if wrong else RIGHT)(exchange)

    return serving(behave)


def reasc_over(model: Any, **options: Any) -> ReASCRunnable:
    """Reads confidences; every answer weighs 1, so four decide."""
    return ReASCRunnable(model=model, calibration=calibration(mean=3.0), allow_fingerprint_mismatch=True, **options)


@cases(FAILURES)
def test_a_fault_that_costs_the_sample_costs_only_that(name: str, runner: Any, chat: Chat) -> None:
    with with_fault(name) as served:
        result = runner.solve(reasc_over(chat(served.url, timeout=TIMEOUT)), "q")
    assert (result.answer, result.decision.samples, result.decision.reason) == ("42", 4, "evidence")
    lost, failure = result.responses[BAD], FAILURES[chat.name][name]
    assert (lost.status, lost.used, lost.weight) == ("failed", False, 0.0)
    assert type(lost.error).__name__ == failure.error
    assert re.search(failure.words, str(lost.error))
    assert (lost.message.text if lost.message else None) == failure.text
    assert result.failures == (lost.error,)
    assert f"1 of {len(result.responses)} samples failed" in result.notices
    assert result.message.response_metadata["reasc"]["failed"] == 1


@cases({client: FAULTS.keys() - failures.keys() - NO_VOTE - NO_SCORE for client, failures in FAILURES.items()})
def test_a_fault_that_loses_nothing_is_no_failure(name: str, runner: Any, chat: Chat) -> None:
    with with_fault(name) as served:
        result = runner.solve(reasc_over(chat(served.url)), "q")
    assert (result.answer, result.decision.samples, result.failures) == ("42", 4, ())
    odd = result.responses[BAD]
    assert (odd.status, odd.answer, odd.score, odd.weight) == ("complete", "42", 1.25, 1.0)
    assert odd.message.text.endswith("it is 42")


@cases({client: NO_VOTE - failures.keys() for client, failures in FAILURES.items()})
def test_a_response_without_text_costs_tokens_and_casts_no_vote(name: str, runner: Any, chat: Chat) -> None:
    with with_fault(name) as served:
        result = runner.solve(reasc_over(chat(served.url)), "q")
    assert (result.answer, result.decision.samples) == ("42", 5)  # four votes and an abstention
    silent = result.responses[BAD]
    assert (silent.status, silent.answer, silent.score, silent.weight) == ("complete", None, None, 0.0)


@cases(dict.fromkeys(FAILURES, ("429", "HTML", "stream ended early")))
def test_nothing_but_faults_is_one_error_that_lists_them(name: str, runner: Any, chat: Chat) -> None:
    with serving(FAULTS[name]) as served, pytest.raises(SamplingError) as caught:
        runner.solve(reasc_over(chat(served.url)), "q")
    assert len(served.exchanges) == 4, "after one wave of nothing but failures no more is tried"
    failure = FAILURES[chat.name][name]
    assert re.search(failure.words, str(caught.value))
    assert [type(error).__name__ for error in caught.value.failures] == [failure.error] * 4


def test_one_failure_alone_may_be_bad_luck(runner: Any, chat: Chat) -> None:
    async def behave(exchange: Exchange) -> None:
        await (FAULTS["stream ended early"] if exchange.sample == 0 else RIGHT)(exchange)

    made = calibration(mean=3.0, gate=100.0)  # it may open at the first response, so that one goes alone
    with serving(behave) as served:
        reasc = ReASCRunnable(model=chat(served.url), calibration=made, allow_fingerprint_mismatch=True)
        result = runner.solve(reasc, "q")
    assert (result.answer, result.responses[0].status) == ("42", "failed")


@cases(ASKED_AGAIN)
def test_a_fault_that_passes_is_asked_again(name: str, runner: Any, chat: Chat) -> None:
    with with_fault(name, attempts=1) as served:
        result = runner.solve(reasc_over(chat(served.url, timeout=TIMEOUT, max_retries=2)), "q")
        assert sum(exchange.sample == BAD for exchange in served.exchanges) == 2
    assert (result.answer, result.decision.samples, result.failures) == ("42", 4, ())
    assert result.responses[BAD].score == 1.25
    assert result.usage.output_tokens == 4 * TOKENS, "the lost attempt had brought no token"


def test_the_server_says_when_to_ask_again(runner: Any, chat: Chat) -> None:
    came: list[float] = []

    async def behave(exchange: Exchange) -> None:
        came.append(time.monotonic())
        await (RIGHT if exchange.attempt else FAULTS["429 with Retry-After"])(exchange)

    with serving(behave) as served:
        runner.invoke(ReASCRunnable(model=chat(served.url, max_retries=2), max_samples=1), "q")
    first, second = came
    assert second - first >= 1.0


def test_what_does_not_pass_is_not_asked_again(runner: Any, chat: Chat) -> None:
    with serving(refuses(400)) as served, pytest.raises(SamplingError, match="refused with 400"):
        runner.invoke(ReASCRunnable(model=chat(served.url, max_retries=2), concurrency=2), "q")
    assert len(served.exchanges) == 2


@cases(dict.fromkeys(FAILURES, sorted(NO_SCORE)))
def test_half_the_logprobs_are_none(name: str, runner: Any, chat: Chat) -> None:
    with with_fault(name) as served:
        model = chat(served.url)
        with pytest.raises(LogprobsUnavailable):
            runner.invoke(reasc_over(model), "q")
        result = runner.solve(reasc_over(model, on_missing_confidence="count"), "q")
    assert (result.answer, result.decision.samples, result.failures) == ("42", 4, ())
    odd = result.responses[BAD]
    assert (odd.answer, odd.score, odd.weight) == ("42", None, 1.0)
    assert any("1 of 4 responses" in notice for notice in result.notices), result.notices


@cases(dict.fromkeys(FAILURES, ("usage negative", "usage null", "usage zero")))
def test_usage_that_cannot_be_is_counted_from_what_came(name: str, runner: Any, chat: Chat) -> None:
    with with_fault(name) as served:
        result = runner.solve(reasc_over(chat(served.url)), "q")
    assert result.usage.estimated
    assert (result.usage.input_tokens, result.usage.output_tokens) == (4 * PROMPT_TOKENS, 4 * TOKENS)


def test_a_response_that_drips_is_cut_off_by_its_time_limit(runner: Any, chat: Chat) -> None:
    async def behave(exchange: Exchange) -> None:
        await (drip(0.1) if exchange.sample == BAD else RIGHT)(exchange)

    with serving(behave) as served:
        result = runner.solve(reasc_over(chat(served.url), sample_timeout=TIMEOUT), "q")
    assert result.answer == "42"
    assert isinstance(result.responses[BAD].error, SampleTimeout)


def test_a_chat_model_with_n_is_asked_for_one_choice_per_sample(runner: Any, chat: Chat) -> None:
    with serving(RIGHT) as served:
        result = runner.solve(reasc_over(chat(served.url, n=3)), "q")
        assert {request.get("n") or 1 for request in served.requests} == {1}
    assert (result.answer, result.decision.samples) == ("42", 4)


@pytest.mark.parametrize("face", [SyncFace(), AsyncFace()], ids=["sync", "async"])
def test_fewer_choices_than_asked_for_are_no_more_than_came(face: Any, chat: Chat) -> None:
    async def behave(exchange: Exchange) -> None:
        exchange.body["n"] -= 1
        await RIGHT(exchange)

    with serving(behave) as served:
        [choices] = face.generate(chat(served.url, n=3), [[HumanMessage("q")]]).generations
    assert [choice.text for choice in choices] == ["it is 42"] * 2


def rows() -> dict[str, list[str]]:
    """What the server does -> what comes of it, over each client."""
    section = README.read_text(encoding="utf-8").split(HEADING)[1].split("\n#")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {first.split(" (")[0]: others for first, *others in cells}


def outcome(client: str, name: str) -> str:
    if name in ASKED_AGAIN[client] or name == "429 with Retry-After":
        return "asked again"
    if name in FAILURES[client]:
        return "failed"
    return "no vote" if name in NO_VOTE else "no confidence" if name in NO_SCORE else "no harm"


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_has_its_row(name: str) -> None:
    cells = rows()[name]
    for client, cell in zip(FAILURES, cells, strict=True):
        said = cells[0] if cell == "likewise" else cell
        assert said.startswith(outcome(client, name)), client
