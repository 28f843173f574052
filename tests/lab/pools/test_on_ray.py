"""Recording by workers on a real Ray cluster of this machine: the same pool, whatever dies."""

import os
import pickle
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from langchain_reasc_lab.pools import QuestionSampler, read_pool, record_pool
from langchain_reasc_lab.pools.ray_workers import LOCAL, RayWorkers, ray_cluster

from lab.pools.ray_processes import workers
from lab.pools.synthetic import Guesser, content, labelled
from langchain_reasc.cli.models import ModelOptions
from langchain_reasc.data import Template
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


def slow(text: str, seed: int, *, slowest: str = "", log: Path | None = None) -> None:
    """Takes its time, and more of it for one question."""
    if log is not None:
        with log.open("a") as file:
            file.write(f"{text}\n")
    time.sleep(2 if text == slowest else 0.1)


def deadly(text: str, seed: int) -> None:
    """Takes the process with it that asks one of the questions."""
    if text == "question 3":
        os.kill(os.getpid(), signal.SIGKILL)


def broken(name: str) -> Guesser:
    raise ConfigurationError(f"the environment variable {name} is not set")


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
    with pytest.raises(SamplingError, match=r"the workers on Ray ended: .*run the same command again"):
        record_pool(Guesser(hears=deadly), QUESTIONS, path, samples=1, workers=RayWorkers(count=1))
    before = content(read_pool(path))
    assert before and "q3" not in before
    after = content(record_pool(Guesser(), QUESTIONS, path, samples=1, workers=ON_TWO))
    assert len(after) == 40 and {id: after[id] for id in before} == before


def test_a_model_that_cannot_be_sent_is_made_by_each_worker(tmp_path: Path) -> None:
    model, path = Guesser(hears=threading.Lock().acquire), tmp_path / "p.sqlite"  # no other process can have the lock
    with pytest.raises(ConfigurationError, match=r"Guesser cannot be sent to workers.*make_model"):
        record_pool(model, QUESTIONS[:4], path, samples=1, workers=ON_TWO)
    pool = record_pool(model, QUESTIONS[:4], path, samples=1, workers=RayWorkers(make_model=Guesser))
    assert len(pool.questions) == 4


def test_a_worker_that_cannot_make_the_model_says_why(tmp_path: Path) -> None:
    unmade = RayWorkers(make_model=partial(broken, "NO_SUCH_KEY"))
    with pytest.raises(SamplingError, match=r"a worker on \S+ cannot have the model: .*NO_SUCH_KEY is not set"):
        record_pool(Guesser(), QUESTIONS, tmp_path / "p.sqlite", samples=1, workers=unmade)


def test_a_key_is_taken_from_the_environment_of_the_worker_and_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("langchain_reasc_openai")
    monkeypatch.setenv("A_KEY", "sk-secret")
    make = ModelOptions("m", ["http://a:1"], "A_KEY").open
    with make() as model:
        packed = RayWorkers(make_model=make)._packed(QuestionSampler(model, Template(), 1))
    assert b"sk-secret" not in packed
    monkeypatch.setenv("A_KEY", "sk-of-the-worker")
    assert pickle.loads(packed)().model.openai_api_key.get_secret_value() == "sk-of-the-worker"


def test_more_than_the_cluster_has_is_refused(tmp_path: Path) -> None:
    greedy = RayWorkers(gpus=512)
    with pytest.raises(ConfigurationError, match=r"a worker takes 512 GPUs, and the whole Ray cluster has \d+"):
        record_pool(Guesser(), QUESTIONS, tmp_path / "p.sqlite", samples=1, workers=greedy)


def test_nothing_more_is_asked_after_an_interruption(tmp_path: Path) -> None:
    log = tmp_path / "asked.txt"

    def interrupt(done: int, questions: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model = Guesser(hears=partial(slow, log=log))
        record_pool(model, QUESTIONS, tmp_path / "p.sqlite", samples=2, workers=ON_TWO, on_question=interrupt)
    assert len(read_pool(tmp_path / "p.sqlite").questions) == 5
    time.sleep(2)  # what was in flight ends
    asked = log.read_text()
    time.sleep(2)
    assert log.read_text() == asked and 10 <= asked.count("\n") < 60


def test_a_failing_question_costs_none_that_was_in_flight(tmp_path: Path) -> None:
    path = tmp_path / "p.sqlite"
    # Question 1 is in flight when question 0 has failed.
    model = Guesser(fails_on="question 0", hears=partial(slow, slowest="question 1"))
    with pytest.raises(SamplingError, match=r"2 of 2 samples of question 'q0' failed.*run the same command") as failed:
        record_pool(model, QUESTIONS, path, samples=2, workers=ON_TWO)
    assert isinstance(failed.value.failures[0], ConnectionError)
    held = {question.id for question in read_pool(path).questions}
    assert "q1" in held and len(held) < 30, "nothing new is begun after a failure"
    assert len(record_pool(Guesser(), QUESTIONS, path, samples=2, workers=ON_TWO).questions) == 40
