"""A rate limiter permits samples one by one, and nobody else waits for it."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from langchain_core.rate_limiters import BaseRateLimiter
from langchain_reasc_llama_cpp import ChatLlamaCpp

from backends.llama_cpp.faces import AsyncFace, Face, cache_read, wait_until
from langchain_reasc.exceptions import ModelClosedError

QUESTION = "How much is 2 + 3?"
Limited = Callable[[BaseRateLimiter], ChatLlamaCpp]


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
def limited(shipped: ChatLlamaCpp) -> Limited:
    return lambda limiter: shipped.model_copy(update={"rate_limiter": limiter})


def test_it_is_asked_once_for_each_sample_and_changes_none(face: Face, shipped: ChatLlamaCpp, limited: Limited) -> None:
    gate = Gate()
    free = dict(face.sample(shipped, QUESTION, n=5, first=3, max_tokens=24))
    paced = dict(face.sample(limited(gate), QUESTION, n=5, first=3, max_tokens=24))
    assert gate.asked == ["async" if isinstance(face, AsyncFace) else "sync"] * 5
    assert {index: message.text for index, message in paced.items()} == {
        index: message.text for index, message in free.items()
    }
    prompt = len(shipped.prompt_tokens(QUESTION))
    assert [cache_read(paced[index]) for index in range(4, 8)] == [prompt] * 4, "the prompt is prefilled once"


def test_none_begins_before_it_is_permitted_and_others_need_not_wait(face: Face, limited: Limited) -> None:
    gate = Gate(permits=2)
    model = limited(gate)
    early: list[int] = []

    def open_later() -> None:
        wait_until(lambda: len(gate.asked) == 3)
        with model.model_copy(update={"rate_limiter": None}).sample(QUESTION, n=2, max_tokens=4) as others:
            early.extend([len(list(others)), len(gate.asked)])
        gate.opens.set()

    helper = threading.Thread(target=open_later)
    helper.start()
    samples = face.sample(model, QUESTION, n=4, max_tokens=8)
    helper.join()
    assert sorted(index for index, _ in samples) == [0, 1, 2, 3]
    assert (early, len(gate.asked)) == ([2, 3], 4), "the third was asked for, the fourth not yet"


def test_cancelled_while_it_waits_the_stream_ends_at_once(face: Face, limited: Limited) -> None:
    gate = Gate(permits=2)
    samples = face.sample(limited(gate), QUESTION, n=8, max_tokens=4, cancel_after=2)
    assert sorted(index for index, _ in samples) == [0, 1]
    assert not gate.opens.is_set()
    gate.opens.set()
    wait_until(lambda: len(gate.asked) > 3, 0.05)
    assert len(gate.asked) <= 3, "nobody asks for samples that nobody wants"


def test_an_error_of_the_limiter_comes_through_and_ends_the_rest(face: Face, limited: Limited) -> None:
    with pytest.raises(ConnectionError, match="the limiter is down"):
        face.sample(limited(Gate(3, ConnectionError("the limiter is down"))), QUESTION, n=6)
    assert face.sample(limited(Gate()), QUESTION, n=1, max_tokens=4)[0][1].text


def test_a_dropped_stream_frees_the_model(limited: Limited, shipped: ChatLlamaCpp) -> None:
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


def test_a_closed_model_says_so(face: Face, tiny_path: Path) -> None:
    gate = Gate(permits=1)
    model = ChatLlamaCpp(model_path=tiny_path, rate_limiter=gate, max_tokens=4)

    def close() -> None:
        wait_until(lambda: len(gate.asked) == 2)
        model.close()
        gate.opens.set()

    threading.Thread(target=close).start()
    for _ in ("while it waits", "before it is asked"):
        with pytest.raises(ModelClosedError):
            face.sample(model, QUESTION, n=3)
