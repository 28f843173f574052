"""What the server sees of a sample that was cut off."""

import asyncio
import signal
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from servers.exchange import Exchange

from backends.openai.pools import (
    Script,
    endless,
    eventually,
    hangs,
    pool_of,
    sample,
    serving,
    silent,
)


@pytest.mark.parametrize("step", [endless, hangs, silent], ids=["generating", "before the first token", "queued"])
def test_the_server_sees_the_connection_close_at_once(calls: Any, step: Any) -> None:
    closed: list[float] = []

    async def watched(exchange: Exchange) -> None:
        try:
            await step(exchange)
        finally:
            closed.append(time.monotonic())

    script = Script(watched)
    with serving(script) as url, pool_of(url) as pool:
        ended = calls.cancelled_when(pool, lambda: len(script.requests) == 4, n=4)
        decided = time.monotonic()
        assert eventually(lambda: len(closed) == 4)
    assert len(ended) == 4 and max(closed) - decided < 2


def test_a_swallowed_cancellation_does_not_keep_a_sample_running(calls: Any) -> None:
    """Tokens come so fast that a cancellation and a chunk meet: before Python 3.12 `asyncio.wait_for` then loses it."""

    async def flood(exchange: Exchange) -> None:
        while not exchange.gone.is_set():
            await exchange.token("on ")
            await asyncio.sleep(0)

    script = Script(flood)
    with serving(script) as url, pool_of(url) as pool:
        for _ in range(5):
            wanted = len(script.requests) + 4
            calls.cancelled_when(pool, lambda wanted=wanted: len(script.requests) == wanted, n=4)  # type: ignore[misc]
            assert eventually(lambda: script.open == 0)


def test_an_interrupt_leaves_nothing_running() -> None:
    script = Script(endless)
    with serving(script) as url, pool_of(url) as pool:

        def interrupt() -> None:
            assert eventually(lambda: script.open == 3)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # type: ignore[arg-type]

        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt), sample(pool, n=3) as stream:
            list(stream)
        assert eventually(lambda: script.open == 0 and pool.status()[0].in_flight == 0)


@pytest.mark.slow  # three rounds of 8 long samples; make test stops a real server in tests/servers
def test_a_real_server_stops_generating(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="no llama-server here")
    pytest.importorskip("gguf", reason="the shipped model is made endless with gguf")
    from benchmarks.abort import measure_aborts

    aborts = measure_aborts(rounds=3, tokens=900, after=1600, folder=tmp_path)
    assert all(1600 <= abort.before < 0.9 * 8 * 900 for abort in aborts)
    assert statistics.median(abort.share for abort in aborts) < 0.05
