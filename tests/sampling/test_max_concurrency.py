"""``max_concurrency`` bounds the model calls in flight of a whole call, however it is nested, and never for ever."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from agents.acting import agent_of
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableLambda, RunnableParallel
from runnable.fakes import TIMEOUT, Reply, Scripted

from langchain_reasc import ChatReASC, Measure, ReASCMiddleware, ReASCRunnable
from langchain_reasc.exceptions import ConfigurationError
from sampling.test_parallel import parallel

pytestmark = pytest.mark.full

QUESTIONS = [f"q{at}" for at in range(3)]
STATES = [{"messages": [HumanMessage(question)]} for question in QUESTIONS]
OPTIONS: dict[str, Any] = {"concurrency": 4, "max_samples": 4}


def slowly(at: int, token: str) -> None:
    time.sleep(0.003)


def model() -> Scripted:
    """A model whose responses take a moment, and never agree."""
    return Scripted(script=lambda question, index: Reply(f"the answer is {index}", told=slowly))


def chat(model: Any) -> ChatReASC:
    return ChatReASC(model=model, answer="auto", **OPTIONS)


def called(runner: Any, runnable: Any, *args: Any) -> Any:
    """Call it in a thread: a deadlock is a failure, and does not hang."""
    ended: list[Any] = []

    def call() -> None:
        try:
            ended.append(runner(runnable, *args))
        except Exception as error:
            ended.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(3 * TIMEOUT)
    assert ended, "it never came to an end"
    return ended[0]


WAYS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "ChatReASC": lambda run, model, config: run.batch(chat(model), QUESTIONS, config),
    "ReASCRunnable": lambda run, model, config: run.batch(ReASCRunnable(model=model, **OPTIONS), QUESTIONS, config),
    "a mixture": lambda run, model, config: run.batch(
        ReASCRunnable(
            model=model, calibration="mixture", confidence=Measure("top_k"), on_missing_confidence="count", **OPTIONS
        ),
        QUESTIONS,
        config,
    ),
    "a total": lambda run, model, config: run.batch(
        ReASCRunnable(model=model, **OPTIONS), QUESTIONS, config, total_samples=9
    ),
    "an agent": lambda run, model, config: run.batch(agent_of(chat(model)), STATES, config),
    "an agent's middleware": lambda run, model, config: run.batch(
        agent_of(model, ReASCMiddleware(answer="auto", **OPTIONS)), STATES, config
    ),
    "a batch of branches": lambda run, model, config: run.batch(
        RunnableParallel(a=chat(model), b=chat(model), c=chat(model)), QUESTIONS, config
    ),
    "a function": lambda run, model, config: run.batch(
        RunnableLambda(chat(model).invoke, chat(model).ainvoke), QUESTIONS, config
    ),
}


@pytest.mark.parametrize(
    ("way", "limit"), [*((way, 3) for way in WAYS.values()), (WAYS["a total"], 1), (WAYS["a batch of branches"], 1)]
)
def test_so_many_calls_are_in_flight_at_most(runner: Any, way: Callable[..., Any], limit: int) -> None:
    asked = model()
    outcome = called(way, runner, asked, {"max_concurrency": limit})
    assert not isinstance(outcome, Exception), repr(outcome)
    assert asked.log.most_live == limit


def test_others_under_another_number_or_none_are_not_held_up(runner: Any) -> None:
    asked = model()
    answers = RunnableParallel(
        a=chat(asked).with_config(max_concurrency=1), b=chat(asked).with_config(max_concurrency=2), c=chat(asked)
    )
    called(runner.invoke, answers, "q")
    assert 1 + 2 < asked.log.most_live <= 1 + 2 + 4


@pytest.mark.sync_only
def test_two_models_do_not_share_their_slots() -> None:
    """The sample of each waits until that of the other has begun."""
    both = threading.Barrier(2, timeout=TIMEOUT)
    script = lambda question, index: Reply("1", told=lambda at, token: at or both.wait())  # noqa: E731
    alone = [ReASCRunnable(model=Scripted(script=script), max_samples=1) for _ in range(2)]
    with ThreadPoolExecutor() as threads:
        messages = threads.map(lambda one: one.invoke("q", {"max_concurrency": 1}), alone)
        assert [message.text for message in messages] == ["1", "1"]


def test_streams_that_are_read_in_turns_do_not_wait_for_each_other() -> None:
    """A response that is passed on ends by itself, though nobody may be reading on."""
    asked, config = Scripted(script=lambda question, index: Reply("one two three")), {"max_concurrency": 1}
    chat = ChatReASC(model=asked)

    def read(_: Any) -> list[str]:
        return [
            one.text + other.text for one, other in zip(chat.stream("q", config), chat.stream("q", config), strict=True)
        ]

    async def aread() -> list[str]:
        first, second = chat.astream("q", config), chat.astream("q", config)
        return [one.text + (await anext(second)).text async for one in first]

    assert called(read, None)[:3] == ["oneone", " two two", " three three"]
    assert called(lambda _: asyncio.run(aread()), None)[:3] == ["oneone", " two two", " three three"]
    branches = RunnableParallel(a=chat, b=chat)
    assert called(lambda _: list(branches.stream("q", config)), None)
    assert asked.log.most_live == 1


@pytest.mark.parametrize("limit", [0, -1])
def test_a_number_that_lets_nothing_through_is_refused(runner: Any, limit: int) -> None:
    with pytest.raises(ConfigurationError, match=f"max_concurrency={limit}"):
        runner.invoke(chat(model()), "q", {"max_concurrency": limit})
    with pytest.raises(ConfigurationError, match="at least 1"):
        runner.batch(ReASCRunnable(model=model()), QUESTIONS, {"max_concurrency": limit})


@pytest.mark.parametrize("ends", ["is never handed over", "hangs"])
def test_a_sample_that_does_not_end_by_itself_keeps_no_slot(runner: Any, never: threading.Event, ends: str) -> None:
    """Of each question a sample gives its slot back only when its wave is over; the other questions wait for it."""
    hanging = Reply("the answer is 1", opens=never)
    hangs = Scripted(script=lambda question, index: hanging if index else Reply("the answer is 1"))
    given = hangs if ends == "hangs" else parallel(loses=[1])
    reasc = ReASCRunnable(model=given, max_samples=2, concurrency=2, sample_timeout=0.3)
    messages = called(runner.batch, reasc, QUESTIONS, {"max_concurrency": 2})
    assert [message.response_metadata["reasc"]["failed"] for message in messages] == [1, 1, 1]
