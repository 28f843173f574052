"""Finish reasons in all words: a word that is known ends a response, and another only at the end of the stream."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from langchain_reasc import ReASCRunnable
from langchain_reasc.answers import ending_of
from langchain_reasc.exceptions import SamplingError
from langchain_reasc.method import FixedBudget

from .chat_wire import DONE, Chat, words_of
from .conftest import Chat as Client
from .exchange import Exchange
from .fake_server import serving

pytestmark = pytest.mark.full

WHOLE = Chat(words_of("The answer is 14 2"), None)  # half of it would be another answer
PENDING = ["null", "None", "not_finished", "in_progress", "FINISH_REASON_UNSPECIFIED", "so far so good"]
KNOWN = ["stop", "STOP", "length", "tool_calls", "content_filter", "end_turn", "stop_sequence", "eos_token", "COMPLETE"]
BAD = 1  # the sample that goes wrong


def sends(*, every: str | None = None, last: str | None = None, events: int | None = None, mark: str = "") -> Any:
    """Send the response, or its first events, with a finish reason in each event, and another in the last.

    The reply always ends in good order for HTTP.
    """

    async def answer(exchange: Exchange) -> None:
        *texts, end = WHOLE.events({})
        for event in texts:
            event["choices"][0]["finish_reason"] = every
        end["choices"][0]["finish_reason"] = last
        await exchange.stream([*[*texts, end][:events], *([mark] if mark else [])])

    return answer


def sample_meets(fault: Any) -> Any:
    async def answer(exchange: Exchange) -> None:
        await (fault if exchange.sample == BAD else sends(last="stop"))(exchange)

    return serving(answer)


def solve(runner: Any, chat: Client, fault: Any) -> Any:
    with sample_meets(fault) as served:
        reasc = ReASCRunnable(model=chat(served.url), answer=digits, rule=FixedBudget(4), max_samples=4, concurrency=4)
        return runner.solve(reasc, "q")


def digits(text: str) -> str | None:
    """Read "14 2" as 142, and "14" as 14."""
    return "".join(filter(str.isdigit, text)) or None


@pytest.mark.parametrize("word", PENDING)
def test_half_a_response_is_no_whole_one_whatever_word_is_in_its_events(word: str, runner: Any, chat: Client) -> None:
    result = solve(runner, chat, sends(every=word, events=4))
    lost = result.responses[BAD]
    assert (lost.status, lost.message.text) == ("failed", "The answer is 14")
    assert isinstance(lost.error, SamplingError) and result.failures == (lost.error,)
    assert (result.answer, result.message.response_metadata["reasc"]["failed"]) == ("142", 1)


@pytest.mark.parametrize("mark", ["", DONE], ids=["no mark", "mark"])
@pytest.mark.parametrize("last", KNOWN)
@pytest.mark.parametrize("every", [None, "null"])
def test_a_known_word_ends_a_response(
    every: str | None, last: str, mark: str, runner: Any, chat: Client, caplog: Any
) -> None:
    result = solve(runner, chat, sends(every=every, last=last, mark=mark))
    whole = result.responses[BAD]
    assert (whole.status, result.failures) == ("complete", ())
    assert whole.message.text == "The answer is 14 2"
    assert "finish reason" not in caplog.text


@pytest.mark.parametrize("every", [None, *PENDING])
def test_the_last_word_says_that_a_response_was_cut_off(every: str | None, runner: Any, chat: Client) -> None:
    result = solve(runner, chat, sends(every=every, last="length"))
    endings = [ending_of(response.message) for response in result.responses]
    assert endings == ["whole", "cut off", "whole", "whole"]


@pytest.fixture
def new_word() -> Iterator[str]:
    """A word that no test used before, because its warning is logged once per process."""
    yield f"word-{next(_numbers)}"


_numbers = iter(range(1000))


@pytest.mark.parametrize("mark", ["", DONE], ids=["no mark", "mark"])
def test_an_unknown_word_ends_a_response_at_the_end_of_the_stream_with_one_warning(
    mark: str, runner: Any, chat: Client, new_word: str, caplog: Any
) -> None:
    async def answer(exchange: Exchange) -> None:
        await sends(last=new_word, mark=mark)(exchange)

    with serving(answer) as served:
        reasc = ReASCRunnable(model=chat(served.url), answer=digits, rule=FixedBudget(4), max_samples=4, concurrency=4)
        result = runner.solve(reasc, "q")
    assert (result.answer, result.decision.samples, result.failures) == ("142", 4, ())
    assert [new_word in record.getMessage() for record in caplog.records].count(True) == 1


@pytest.mark.parametrize("word", ["error", "ERROR", "network_error"])
@pytest.mark.parametrize("mark", ["", DONE], ids=["no mark", "mark"])
def test_an_error_is_a_failure(word: str, mark: str, runner: Any, chat: Client) -> None:
    result = solve(runner, chat, sends(last=word, mark=mark))
    lost = result.responses[BAD]
    assert (lost.status, lost.message.text) == ("failed", "The answer is 14 2")
    assert isinstance(lost.error, SamplingError) and word.lower() in str(lost.error).lower()
    assert (result.answer, result.message.response_metadata["reasc"]["failed"]) == ("142", 1)


def whole_reply(exchange: Exchange) -> Any:
    choice = {"index": 0, "message": {"role": "assistant", "content": "so"}, "finish_reason": "error"}
    return exchange.reply(200, WHOLE.document("chat.completion", choices=[choice]))


METHODS: dict[str, Callable[[Any, Any], Any]] = {
    "invoke": lambda runner, model: runner.call(model.ainvoke if runner.is_async else model.invoke, "q"),
    "a vote": lambda runner, model: runner.invoke(ReASCRunnable(model=model, max_samples=2), "q"),
}


@pytest.mark.parametrize("method", METHODS)
def test_a_whole_reply_with_an_error_is_a_failure(method: str, runner: Any) -> None:
    with serving(whole_reply) as served, pytest.raises(SamplingError, match="error"):
        METHODS[method](runner, Client("ChatOpenAICompatible")(served.url))
