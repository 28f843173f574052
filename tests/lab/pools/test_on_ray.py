"""Recording by workers on a real Ray cluster of this machine: the same pool, whatever dies."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_reasc_lab.pools import read_pool, record_pool
from langchain_reasc_lab.pools.ray_workers import LOCAL, RayWorkers, ray_cluster

from lab.pools.ray_processes import workers
from lab.pools.synthetic import Guesser, content, labelled
from langchain_reasc.exceptions import ConfigurationError, SamplingError

pytestmark = [
    pytest.mark.slow,  # a cluster's start
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found as Linux tells them"),
]

QUESTIONS = labelled(40)
ON_TWO = RayWorkers(count=2, concurrency=2)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[Any]:
    pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        # The workers are to find the modules of these tests.
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]))
        with ray_cluster(LOCAL, cpus=2) as ray:
            yield ray


def slow(text: str, seed: int) -> None:
    """Takes its time."""
    time.sleep(0.1)


def deadly(text: str, seed: int) -> None:
    """Takes the process with it that asks one of the questions."""
    if text == "question 3":
        os.kill(os.getpid(), signal.SIGKILL)


def test_it_is_the_pool_that_one_machine_records(tmp_path: Path) -> None:
    moves: list[tuple[int, int]] = []
    alone = record_pool(Guesser(), QUESTIONS, tmp_path / "alone.sqlite", samples=3)
    on_ray: Any = {"workers": ON_TWO, "on_question": lambda *at: moves.append(at)}
    pool = record_pool(Guesser(), QUESTIONS, tmp_path / "ray.sqlite", samples=3, **on_ray)
    assert content(pool) == content(alone)
    assert moves == [(done, 40) for done in range(41)]
    more = record_pool(Guesser(), QUESTIONS, tmp_path / "ray.sqlite", samples=5, workers=ON_TWO)
    assert content(more) == content(record_pool(Guesser(), QUESTIONS, tmp_path / "alone.sqlite", samples=5))


def test_a_killed_worker_costs_nothing_that_was_written(tmp_path: Path) -> None:
    killed: list[int] = []

    def kill(done: int, questions: int) -> None:
        if done == 9:
            killed.append(workers()[0])
            os.kill(killed[0], signal.SIGKILL)

    on_ray: Any = {"workers": ON_TWO, "on_question": kill}
    pool = record_pool(Guesser(hears=slow), QUESTIONS, tmp_path / "p.sqlite", samples=2, **on_ray)
    assert killed and killed[0] not in workers()
    assert content(pool) == content(record_pool(Guesser(), QUESTIONS, tmp_path / "alone.sqlite", samples=2))


def test_a_question_that_kills_its_worker_ends_the_run_and_leaves_what_there_is(tmp_path: Path) -> None:
    path = tmp_path / "p.sqlite"
    with pytest.raises(SamplingError, match=r"Ray ended: .*run the same command"):
        record_pool(Guesser(hears=deadly), QUESTIONS, path, samples=1, workers=RayWorkers(count=1))
    before = content(read_pool(path))
    assert before and "q3" not in before
    after = content(record_pool(Guesser(), QUESTIONS, path, samples=1, workers=ON_TWO))
    assert len(after) == 40 and {id: after[id] for id in before} == before


def test_a_model_that_cannot_be_sent_is_made_by_each_worker(tmp_path: Path) -> None:
    model, path = Guesser(hears=threading.Lock().acquire), tmp_path / "p.sqlite"  # no other process can have the lock
    with pytest.raises(ConfigurationError, match=r"Guesser .*make_model"):
        record_pool(model, QUESTIONS[:4], path, samples=1, workers=ON_TWO)
    pool = record_pool(model, QUESTIONS[:4], path, samples=1, workers=RayWorkers(make_model=Guesser))
    assert len(pool.questions) == 4
