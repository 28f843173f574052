"""Recording by two workers on Ray from two real llama-servers, of whatever dies in the middle."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from langchain_reasc_lab.pools.ray_workers import LOCAL, RayWorkers, ray_cluster
from langchain_reasc_llama_cpp import embedded_model_path
from langchain_reasc_openai import ChatOpenAICompatible
from pools.ray_processes import workers

from langchain_reasc.pools import Pool, record_pool

from .llama_server import LlamaServer, llama_server, problems

pytestmark = [
    pytest.mark.slow,  # a cluster and two servers
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found as Linux tells them"),
]

COUNT, SAMPLES = 40, 4


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
