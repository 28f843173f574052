"""Recording by two workers on Ray from two real llama-servers, of whatever dies in the middle."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from langchain_reasc_lab.pools.ray_workers import LOCAL, RayWorkers, ray_cluster
from langchain_reasc_llama_cpp import embedded_model_path
from langchain_reasc_openai import ChatOpenAICompatible
from pools.ray_processes import descendants, wait_until_gone, workers

from langchain_reasc.pools import Pool, PoolStore, read_pool, record_pool

from .llama_server import LlamaServer, llama_server, problems

pytestmark = [
    pytest.mark.slow,  # a cluster and two servers
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found as Linux tells them"),
]

COUNT, SAMPLES = 40, 4
START = "from langchain_reasc.cli import main; main()"


@pytest.fixture
def servers() -> Iterator[list[tuple[LlamaServer, ExitStack]]]:
    """Two that serve the same model, each with what ends it."""
    pytest.importorskip("xllamacpp")
    pytest.importorskip("ray")
    with ExitStack() as both:
        made = []
        for _ in range(2):
            one = both.enter_context(ExitStack())
            made.append((one.enter_context(llama_server(embedded_model_path())), one))
        yield made


def on(servers: list[tuple[LlamaServer, ExitStack]]) -> Any:
    urls = [server.url for server, _ in servers]
    return ChatOpenAICompatible(base_url=urls, model="word-problems", temperature=1.0, seed=0, max_tokens=256)


def counts(pool: Pool) -> dict[str, int]:
    return {question.id: len(question.responses) for question in pool.questions}


def texts(pool: Pool) -> dict[str, list[str | None]]:
    return {question.id: pool.texts(question.id) for question in pool.questions}


def test_a_server_and_a_worker_die_and_the_pool_is_whole(servers: Any, tmp_path: Path) -> None:
    questions, killed = problems("test", COUNT), []

    def kill(done: int, of: int) -> None:
        if done == 8:
            servers[1][1].close()  # the other server takes over what it was working on
        if done == 16:
            killed.append(workers()[0])
            os.kill(killed[0], signal.SIGKILL)

    model = on(servers)
    alone = record_pool(model, questions, tmp_path / "alone.sqlite", samples=SAMPLES, answer="boxed", concurrency=4)
    with ray_cluster(LOCAL, cpus=2):
        pool = record_pool(
            model,
            questions,
            tmp_path / "ray.sqlite",
            samples=SAMPLES,
            answer="boxed",
            workers=RayWorkers(concurrency=4),
            on_question=kill,
        )
    model.close()
    assert killed and counts(pool) == counts(alone) == {question.id: SAMPLES for question in questions}
    # The same seeds. What else a server computes at the time reaches its last bits, and seldom a token.
    here, there = texts(alone), texts(pool)
    same = sum(one == other for id in here for one, other in zip(here[id], there[id], strict=True))
    assert same >= 0.9 * COUNT * SAMPLES, same


def test_a_command_that_was_killed_goes_on_where_it_was(servers: Any, tmp_path: Path) -> None:
    path, data = tmp_path / "pool.sqlite", embedded_model_path().with_name("test.jsonl")
    urls = [word for server, _ in servers for word in ("--url", server.url)]
    options = ["--model", "word-problems", "--samples", str(SAMPLES), "--limit", str(2 * COUNT), "--answer", "boxed"]
    command = [sys.executable, "-c", START, "record", str(data), "--out", str(path), *urls, *options, "--ray", "local"]
    running = subprocess.Popen([*command, "--concurrency", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    until = time.monotonic() + 90
    while held(path) < 5:
        assert running.poll() is None and time.monotonic() < until, running.stderr and running.stderr.read()
        time.sleep(0.02)
    # Ray's agents, which only report, notice a little later that they are alone.
    below = {pid for pid, command in descendants(running.pid).items() if "Agent" not in command}
    assert len(workers(running.pid)) == 2
    running.kill()
    running.communicate()
    wait_until_gone(below)
    before = texts(read_pool(path))
    assert 5 <= len(before) < 2 * COUNT
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert f"Recording: {2 * COUNT} of {2 * COUNT}\n" in done.stderr
    assert "ray" not in done.stderr.replace(str(path), "").lower(), "it keeps quiet"
    pool = read_pool(path)
    assert list(counts(pool).values()) == [SAMPLES] * 2 * COUNT
    after = texts(pool)
    assert {id: after[id] for id in before} == before, "what was written is not drawn again"


def held(path: Path) -> int:
    return len(PoolStore.open(path).ids()) if path.exists() and path.stat().st_size else 0
