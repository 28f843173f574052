"""Whatever a model raises or yields, its sample fails alone, and the call ends."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessageChunk, HumanMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import RunnableLambda
from runnable.fakes import PROMPT_TOKENS, Reply, Scripted, saying

from langchain_reasc import ChatReASC, ReASCRunnable

SECONDS = 4  # in which a call must end


class Odd(BaseException):
    """No ``Exception``."""


def setting(**fields: Any) -> AIMessageChunk:
    """A chunk with values that its class would refuse, as a model may set them after it was made."""
    chunk = AIMessageChunk("a", usage_metadata={"input_tokens": 1, "output_tokens": 1, "total_tokens": 2})
    for name, value in fields.items():
        setattr(chunk, name, value)
    return chunk


RAISED: dict[str, BaseException] = {
    "a task that the model cancelled": asyncio.CancelledError(),
    "sys.exit": SystemExit(3),
    "a closed generator": GeneratorExit(),
    "a base exception": Odd("odd"),
}
YIELDED: dict[str, list[Any]] = {
    "a number, then text": [AIMessageChunk("a", response_metadata={"model_name": 5})],
    "kinds of additional_kwargs": [
        AIMessageChunk("a", additional_kwargs={"x": {"y": 1}}),
        AIMessageChunk("b", additional_kwargs={"x": "y"}),
    ],
    "the user's words": [AIMessageChunk("a"), HumanMessageChunk("b")],
    "usage that is no number": [setting(), setting(usage_metadata={"input_tokens": "many"})],
    "a number as content": [setting(content=5), setting()],
    "a number among the blocks": [setting(content=[7]), setting(content=[{"index": "x"}])],
}


class Yielding(Scripted):
    """Sample 1 yields these chunks before its last one."""

    odd: Any = ()

    def _calls(self, reply: Reply, key: tuple[str, int]) -> Iterator[ChatGenerationChunk]:
        yield from (ChatGenerationChunk(message=chunk) for chunk in (self.odd if key[1] == 1 else ()))


def in_time(call: Callable[[], Any]) -> Any:
    """What the call returns or raises, which must be soon."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append((call(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert outcome, f"the call has not ended after {SECONDS} s"
    value, error = outcome[0]
    if error is not None:
        raise error
    return value


def raising(error: BaseException) -> Scripted:
    return saying("1", Reply("half a", error=error), "1")  # type: ignore[arg-type]


def in_a_lambda(model: Scripted) -> Any:
    """A step that is no chat model; which sample it draws it hears from its config."""
    return RunnableLambda(lambda prompt, config: model.invoke(prompt, config))


MODELS: dict[str, Callable[[Scripted], Any]] = {
    "streamed": lambda model: model,
    "whole": lambda model: model.model_copy(update={"disable_streaming": True}),
    "with fallbacks": lambda model: model.with_fallbacks([model], exceptions_to_handle=(KeyError,)),
    "no chat model": in_a_lambda,
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("error", RAISED.values(), ids=RAISED)
def test_what_it_raises_fails_one_sample(runner: Any, error: BaseException, make: Callable[[Scripted], Any]) -> None:
    if runner.is_async and make is in_a_lambda and isinstance(error, SystemExit):
        pytest.skip("LangChain runs it as a task of its own, and asyncio ends the loop for that")
    reasc = ReASCRunnable(model=make(raising(error)), concurrency=4)
    result = in_time(lambda: runner.solve(reasc, "q"))
    assert result.answer == "1"
    [failure] = result.failures
    assert type(error).__name__ in repr(failure)
    assert [response.status for response in result.responses][:4] == ["complete", "failed", "complete", "complete"]


@pytest.mark.parametrize("odd", YIELDED.values(), ids=YIELDED)
def test_chunks_that_do_not_add_up_fail_one_sample(runner: Any, odd: list[Any]) -> None:
    model = Yielding(script=lambda question, index: Reply("the answer is 1"), odd=odd)
    result = in_time(lambda: runner.solve(ReASCRunnable(model=model, concurrency=4), "q"))
    assert (result.answer, len(result.failures)) == ("1", 1)
    paid = result.responses[1].message
    assert paid.text.startswith("the answer is 1")
    assert result.usage.input_tokens >= 4 * PROMPT_TOKENS


@pytest.mark.parametrize("face", [ReASCRunnable, ChatReASC])
@pytest.mark.parametrize(
    "fault", [RAISED["sys.exit"], RAISED["a task that the model cancelled"], YIELDED["a number, then text"]]
)
def test_a_batch_loses_nothing_else(runner: Any, fault: Any, face: Any) -> None:
    if isinstance(fault, BaseException):
        model = raising(fault)
    else:
        model = Yielding(script=lambda question, index: Reply("the answer is 1"), odd=fault)
    reasc = face(model=model, answer="number", concurrency=4)
    messages = in_time(lambda: runner.batch(reasc, ["q", "r"]))
    assert [message.response_metadata["reasc"]["answer"] for message in messages] == ["1", "1"]


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_an_interrupt_ends_the_call(runner: Any, make: Callable[[Scripted], Any]) -> None:
    reasc = ReASCRunnable(model=make(raising(KeyboardInterrupt())), concurrency=4)
    with pytest.raises(KeyboardInterrupt):
        in_time(lambda: runner.solve(reasc, "q"))


def chain_of(error: BaseException) -> list[BaseException]:
    """All errors that a reporter comes to from this one, which must be found in finitely many steps."""
    found: list[BaseException] = []

    def follow(one: BaseException | None, above: tuple[BaseException, ...]) -> None:
        if one is None:
            return
        assert not any(one is other for other in above), f"{one!r} is behind itself"
        found.append(one)
        follow(one.__cause__, (*above, one))
        follow(one.__context__, (*above, one))

    follow(error, ())
    return found


SINGLE = ValueError("always the same object")


def caused() -> Exception:
    """An error that has a cause of its own."""
    try:
        try:
            raise OSError("no route")
        except OSError as cause:
            raise ValueError("down") from cause
    except ValueError as error:
        return error


@pytest.mark.parametrize("face", [ReASCRunnable, ChatReASC])
@pytest.mark.parametrize("make", [lambda: SINGLE, caused, lambda: SystemExit(3)], ids=["one object", "caused", "exit"])
def test_no_error_is_behind_itself(runner: Any, make: Any, face: Any) -> None:
    model = Scripted(script=lambda question, index: Reply("half a", error=make()))
    outer: Any = face(model=model, answer="number")
    retried = outer.with_retry(stop_after_attempt=2, wait_exponential_jitter=False)
    for call in (runner.invoke, runner.stream, lambda *args: runner.batch(outer, ["q", "r"])):
        with pytest.raises(Exception) as raised:
            in_time(lambda call=call: call(retried, "q"))
        chain = chain_of(raised.value)
        assert not (make is caused and face is ChatReASC) or any(isinstance(one, OSError) for one in chain)
