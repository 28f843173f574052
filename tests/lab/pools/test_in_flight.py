"""Several calls at once, each for a limited time."""

import threading
import time
from collections.abc import Callable
from functools import partial

import pytest
from langchain_reasc_lab.pools.grading import in_flight


def test_all_come_out_with_their_places_and_no_more_run_at_once() -> None:
    live, most, lock = 0, 0, threading.Lock()

    def call(number: int) -> int:
        nonlocal live, most
        with lock:
            live += 1
            most = max(most, live)
        time.sleep(0.005)
        with lock:
            live -= 1
        return number**2

    outcomes = dict(in_flight((partial(call, n) for n in range(20)), concurrency=3))
    assert outcomes == {n: n**2 for n in range(20)}
    assert most == 3


def test_one_that_raises_costs_only_itself() -> None:
    def raising() -> int:
        raise ValueError("no")

    outcomes = dict(in_flight([lambda: 1, raising, lambda: 3], concurrency=2))
    assert (outcomes[0], outcomes[2]) == (1, 3) and isinstance(outcomes[1], ValueError)


def test_one_that_takes_too_long_gives_its_place_away_and_comes_out_once() -> None:
    opened = threading.Event()

    def slow() -> int:
        opened.wait(10)
        return 0

    def last() -> int:
        opened.set()  # the slow one ends now, after its time
        time.sleep(0.05)
        return 2

    outcomes = list(in_flight([slow, lambda: 1, last], concurrency=1, seconds=0.2))
    assert [at for at, _ in outcomes] == [0, 1, 2]
    assert isinstance(outcomes[0][1], TimeoutError) and [one for _, one in outcomes[1:]] == [1, 2]


def test_what_is_no_ordinary_error_ends_it() -> None:
    def exits() -> int:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        list(in_flight([exits], concurrency=1))


def test_nothing_is_begun_that_nobody_asks_for() -> None:
    begun: list[int] = []

    def call(number: int) -> Callable[[], None]:
        return lambda: begun.append(number)

    calls = in_flight([call(n) for n in range(9)], concurrency=1)
    assert begun == []
    next(calls)
    calls.close()
    time.sleep(0.05)
    assert len(begun) <= 2


def test_without_calls_there_is_no_outcome() -> None:
    assert list(in_flight([], concurrency=4)) == []
