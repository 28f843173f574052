"""kill -9 at any moment: what was told to be done is there, nothing is there by half, and recording goes on from it."""

import multiprocessing
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest

from langchain_reasc.exceptions import PoolError
from langchain_reasc.pools import PoolStore, read_pool
from pools.killed import QUESTIONS, die_while_writing, record
from pools.synthetic import content

pytestmark = pytest.mark.slow


@dataclass
class Killer:
    """Records in processes of their own, and kills them."""

    context: ForkServerContext
    moments: random.Random
    kills: int = 0
    told: list[int | None] = field(default_factory=list)

    def record(self, path: Path, *arguments: Any, kill: bool = True) -> bool:
        """Record, and kill it within the time that all of it takes; whether it came to its end."""
        ours, theirs = self.context.Pipe(duplex=False)
        process = self.context.Process(target=record, args=(path, *arguments, theirs))
        process.start()
        theirs.close()
        assert ours.recv() == -1  # it begins
        if kill:
            # Many soon, others throughout.
            time.sleep(self.moments.choice((0.02, 0.1, 0.4)) * self.moments.random())
            process.kill()
        self.told = list(_received(ours))
        process.join()
        ended = bool(self.told) and self.told[-1] is None
        self.kills += kill and not ended
        return ended

    @property
    def done(self) -> int:
        """How many questions were said to be done."""
        return max((one for one in self.told if one is not None), default=0)


def _received(told: Any) -> Iterator[int | None]:
    try:
        while True:
            yield told.recv()
    except EOFError:
        return


@pytest.fixture(scope="module")
def killer() -> Iterator[Killer]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pools.killed"])  # so that a process takes milliseconds to begin
    yield Killer(context, random.Random(0))


def held_by(path: Path) -> dict[str, int]:
    """Whole questions -> responses, of a pool that a kill has left; none where it had not begun."""
    try:
        pool = read_pool(path)
    except PoolError as error:
        assert "no pool at" in str(error) or "holds no question" in str(error), error
        return {}
    for name, (question, messages, signals) in content(pool).items():
        assert len(question.responses) == len(messages) == len(signals), name
        for held, message, one in zip(question.responses, messages, signals, strict=True):
            assert message.text == f"It is \\boxed{{{held.answer}}}."
            assert one.keys() == {"self_certainty", "token_logprob"}
    assert pool.metadata.keys() >= {"fingerprint", "signals_info"}
    assert PoolStore.open(path).ids() == {one.id: len(one.responses) for one in pool.questions}
    return {one.id: len(one.responses) for one in pool.questions}


@pytest.mark.parametrize("concurrency", [1, 4])
def test_70_kills_of_a_recording_and_its_extension(killer: Killer, tmp_path: Path, concurrency: int) -> None:
    record(tmp_path / "whole.sqlite", 4)
    record(tmp_path / "whole.sqlite", 16)
    whole = content(read_pool(tmp_path / "whole.sqlite"))
    killer.kills, pools = 0, 0
    while killer.kills < 70:
        path = tmp_path / f"{pools}.sqlite"
        held: dict[str, int] = {}
        for before, samples in ((0, 4), (4, 16)):
            ended = False
            while not ended:
                ended = killer.record(path, samples, concurrency, kill=killer.kills < 70)
                now = held_by(path)
                assert set(now.values()) <= {before, samples} - {0}, "a question is there whole or not at all"
                assert all(now.get(name, 0) >= count for name, count in held.items()), "nothing is lost again"
                complete = sum(count == samples for count in now.values())
                assert complete >= killer.done, "what was told to be done is there"
                already = sum(count == samples for count in held.values())
                assert complete <= max(killer.done, already) + 1, "and at most what was being told"
                held = now
            assert list(held.values()) == [samples] * QUESTIONS
        assert content(read_pool(path)) == whole
        pools += 1


def test_a_kill_amid_a_transaction_is_undone_by_who_opens_the_pool_next(killer: Killer, tmp_path: Path) -> None:
    path = tmp_path / "p.sqlite"
    record(path, 4)
    before = content(read_pool(path))
    process = killer.context.Process(target=die_while_writing, args=(path,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert path.with_name("p.sqlite-journal").stat().st_size > 0, "something is to be undone"
    assert content(read_pool(path)) == before
    record(path, 4)
    assert content(read_pool(path)) == before
