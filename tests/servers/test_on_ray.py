"""Recording by two workers on Ray from two real llama-servers, of which one dies in the middle, as does a worker."""

import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from lab.pools.ray_processes import workers
from langchain_reasc_lab.pools import Pool, record_pool
from langchain_reasc_lab.pools.ray_workers import LOCAL, RayWorkers, ray_cluster
from langchain_reasc_llama_cpp import embedded_model_path
from langchain_reasc_openai import ChatOpenAICompatible

from .llama_server import llama_server, problems

COUNT, SAMPLES = 40, 4


def texts(pool: Pool) -> dict[str, list[str | None]]:
    return {question.id: pool.texts(question.id) for question in pool.questions}


@pytest.mark.slow  # a cluster and two servers
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found as Linux tells them")
def test_a_server_and_a_worker_die_and_the_pool_is_whole(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    pytest.importorskip("ray")
    questions, killed = problems("test", COUNT), []
    with llama_server(embedded_model_path()) as first, ExitStack() as dying:
        second = dying.enter_context(llama_server(embedded_model_path()))

        def kill(done: int, of: int) -> None:
            if done == 8:
                dying.close()  # the other server takes over what it was working on
            if done == 16:
                killed.append(workers()[0])
                os.kill(killed[0], signal.SIGKILL)

        model = ChatOpenAICompatible(
            base_url=[first.url, second.url], model=first.name, temperature=1.0, seed=0, max_tokens=256
        )
        with model, ray_cluster(LOCAL, cpus=2):
            drawn: dict[str, Any] = {"samples": SAMPLES, "answer": "boxed"}
            alone = record_pool(model, questions, tmp_path / "alone.sqlite", concurrency=4, **drawn)
            on_ray = RayWorkers(concurrency=4)
            pool = record_pool(model, questions, tmp_path / "ray.sqlite", workers=on_ray, on_question=kill, **drawn)
    here, there = texts(alone), texts(pool)
    assert killed and {id: len(said) for id, said in there.items()} == {question.id: SAMPLES for question in questions}
    # The same seeds. What else a server computes at the time reaches its last bits, and seldom a token.
    same = sum(one == other for id in here for one, other in zip(here[id], there[id], strict=True))
    assert same >= 0.9 * COUNT * SAMPLES, same
