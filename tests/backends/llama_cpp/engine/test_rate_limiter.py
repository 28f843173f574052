"""A rate limiter permits samples one by one, and nobody else waits for it."""

import asyncio
import threading
import time
from typing import Any

import pytest
from langchain_core.rate_limiters import BaseRateLimiter, InMemoryRateLimiter
from langchain_reasc_llama_cpp import ChatLlamaCpp

from backends.llama_cpp.faces import AsyncFace, Face, SyncFace
from langchain_reasc import ReASCRunnable
from langchain_reasc.exceptions import ModelClosedError

QUESTION = "How much is 2 + 3?"


class Gate(BaseRateLimiter):
    """Permits so many, then holds the rest until it is opened; ``error`` is raised in place of the last of them."""

    def __init__(self, permits: int = 1000, error: Exception | None = None) -> None:
        self.permits, self.error = permits, error
        self.opens = threading.Event()
        self.asked: list[str] = []

    def acquire(self, *, blocking: bool = True) -> bool:
        self._ask("sync")
        if len(self.asked) > self.permits:
            assert self.opens.wait(30)
        return True

    async def aacquire(self, *, blocking: bool = True) -> bool:
        self._ask("async")
        while len(self.asked) > self.permits and not self.opens.is_set():
            await asyncio.sleep(0.002)
        return True

    def _ask(self, how: str) -> None:
        self.asked.append(how)
        if self.error and len(self.asked) == self.permits:
            raise self.error


@pytest.fixture
def limited(shipped: ChatLlamaCpp) -> Any:
    return lambda limiter: shipped.model_copy(update={"rate_limiter": limiter})


def test_it_is_asked_once_for_each_sample_and_changes_none(face: Face, shipped: ChatLlamaCpp, limited: Any) -> None:
    gate = Gate()
    free = dict(face.sample(shipped, QUESTION, n=5, first=3, max_tokens=24))
    paced = dict(face.sample(limited(gate), QUESTION, n=5, first=3, max_tokens=24))
    assert gate.asked == ["async" if isinstance(face, AsyncFace) else "sync"] * 5
    assert {index: message.text for index, message in paced.items()} == {
        index: message.text for index, message in free.items()
    }
    usage = [message.usage_metadata for _, message in sorted(paced.items())]
    assert [one["input_token_details"]["cache_read"] for one in usage[1:] if one] == [
        one["input_tokens"] for one in usage[1:] if one
    ], "the prompt is prefilled once"


def test_none_begins_before_it_is_permitted_and_others_need_not_wait(face: Face, limited: Any) -> None:
    gate = Gate(permits=2)
    model = limited(gate)
    early: list[int] = []

    def open_later() -> None:
        time.sleep(0.3)
        early.append(len(gate.asked))
        with model.model_copy(update={"rate_limiter": None}).sample(QUESTION, n=2, max_tokens=4) as others:
            early.append(len(list(others)))
        gate.opens.set()

    helper = threading.Thread(target=open_later)
    begun = time.monotonic()
    helper.start()
    samples = face.sample(model, QUESTION, n=4, max_tokens=8)
    helper.join()
    assert sorted(index for index, _ in samples) == [0, 1, 2, 3]
    assert (early, len(gate.asked)) == ([3, 2], 4), "the third was asked for, the fourth not yet"
    assert time.monotonic() - begun >= 0.3


def test_cancelled_while_it_waits_the_stream_ends_at_once(face: Face, limited: Any) -> None:
    gate = Gate(permits=2)
    begun = time.monotonic()
    samples = face.sample(limited(gate), QUESTION, n=8, max_tokens=4, cancel_after=2)
    assert [index for index, _ in samples if index < 2] == [index for index, _ in samples]
    assert len(samples) == 2 and time.monotonic() - begun < 10
    gate.opens.set()
    time.sleep(0.05)
    assert len(gate.asked) <= 3, "nobody asks for samples that nobody wants"


def test_an_error_of_the_limiter_comes_through_and_ends_the_rest(face: Face, limited: Any) -> None:
    with pytest.raises(ConnectionError, match="the limiter is down"):
        face.sample(limited(Gate(3, ConnectionError("the limiter is down"))), QUESTION, n=6)
    assert face.sample(limited(Gate()), QUESTION, n=1, max_tokens=4)[0][1].text


def test_a_dropped_stream_frees_the_model(limited: Any, shipped: ChatLlamaCpp) -> None:
    gate = Gate(permits=1)
    stream = limited(gate).sample(QUESTION, n=4)
    del stream
    gate.opens.set()
    assert shipped.invoke(QUESTION, max_tokens=4).text

    async def left() -> None:
        samples = limited(Gate(permits=1)).asample(QUESTION, n=4, max_tokens=4)
        await anext(samples)
        samples.close()
        await asyncio.sleep(0.01)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(left())


def test_a_closed_model_says_so(face: Face, tiny_path: Any) -> None:
    gate = Gate(permits=1)
    model = ChatLlamaCpp(model_path=tiny_path, rate_limiter=gate, max_tokens=4)
    threading.Timer(0.3, lambda: (model.close(), gate.opens.set())).start()
    for _ in ("while it waits", "before it is asked"):
        with pytest.raises(ModelClosedError):
            face.sample(model, QUESTION, n=3)


def test_langchain_s_own_limiter_spreads_a_question_s_samples(face: Face, limited: Any) -> None:
    limiter = InMemoryRateLimiter(requests_per_second=20, check_every_n_seconds=0.005, max_bucket_size=1)
    begun = time.monotonic()
    reasc = ReASCRunnable(model=limited(limiter).bind(max_tokens=4), answer="boxed", max_samples=6, concurrency=6)
    result = reasc.solve(QUESTION) if isinstance(face, SyncFace) else asyncio.run(reasc.asolve(QUESTION))
    assert len(result.responses) == 6
    assert time.monotonic() - begun >= 5 / 20
