"""Recording on a Ray cluster: workers ask the model, and only this process writes the pool.

    pip install ".[ray,llama-cpp]"
    python examples/ray_data.py                # a cluster of two workers on this machine, each with the shipped model
    python examples/ray_data.py --base-url http://gpu1:8000 http://gpu2:8000 --model Qwen/Qwen2.5-7B-Instruct

It prints the rate, and the time for a million questions with 16 responses at that rate. If it is interrupted or killed,
the same command records the missing questions.

On a real cluster of GPUs, with vLLM or SGLang:

1. `ray start --head` on one machine, `ray start --address=HEAD:6379` on the others, all with the same Python and this
   package with its extras ray and openai. If servers ask for a key, put it into the environment of each machine
   (--key-variable NAME): workers read it there, and it is never sent between machines.
2. A server for each replica: `vllm serve MODEL`, or `python -m sglang.launch_server --model-path MODEL`. Give all their
   addresses to every worker. It sends each question to the replica with the least to do, and continues with the others
   if one dies. A router in front of the replicas would prevent that.
3. On the head, whose disk has the pool:
   `python examples/ray_data.py --ray auto --workers 8 --concurrency 32 --base-url http://gpu1:8000 ... --model MODEL`,
   or without Python `reasc record DATA --out POOL --ray auto --ray-workers 8 --concurrency 32 --url ... --model MODEL`.
   Workers only call servers here, so one for every replica or two is enough. The requests in flight are workers x
   concurrency x samples. Choose as many as fill the servers' batches (vLLM's --max-num-seqs, 256 by default, times the
   replicas), and no more.

One process receives and writes all answers.
"""

import argparse
import os
import sys
import time
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from langchain_reasc_lab.pools import Pool, record_pool
from langchain_reasc_lab.pools.ray_workers import RayWorkers

from langchain_reasc import ReASCError
from langchain_reasc.data import read_questions

SHIPPED = files("langchain_reasc_llama_cpp") / "embedded" / "test.jsonl"
QUESTIONS, SAMPLES = 1_000_000, 16  # of the estimated large recording


def made(
    model: str | None, base_url: list[str] | None, key_variable: str | None
) -> Any:
    """Make a model. Each worker calls this, with the GGUF or the key on its own
    machine.
    """
    if base_url:
        from langchain_reasc_openai import ChatOpenAICompatible

        key = os.environ.get(key_variable) if key_variable else None
        return ChatOpenAICompatible(
            base_url=base_url,
            model=model or "",
            api_key=key,
            temperature=0.7,
            max_tokens=1024,
            seed=0,
        )
    from langchain_reasc_llama_cpp import ChatLlamaCpp

    return ChatLlamaCpp(model_path=model, temperature=0.7, max_tokens=256, seed=0)


class Clock:
    """The times of the first and the last complete question, and the CPU time of this
    process in between.
    """

    def __init__(self) -> None:
        self.begun = self.first = self.last = self.busy = self._busy_at_first = 0.0
        self.held = self.at_first = self.at_last = -1

    def __call__(self, done: int, questions: int) -> None:
        self.last, self.at_last = time.perf_counter(), done
        if self.held < 0:  # the start, with the questions of an earlier run
            self.begun, self.held = self.last, done
        elif self.at_first < 0:
            self.first, self.at_first, self._busy_at_first = (
                self.last,
                done,
                time.process_time(),
            )
        self.busy = time.process_time() - self._busy_at_first


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "--data",
        type=Path,
        default=SHIPPED,
        help="labelled questions, as `reasc record` reads them",
    )
    options.add_argument(
        "--questions", type=int, default=32, help="only the first so many"
    )
    options.add_argument("--samples", type=int, default=4, help="responses to each")
    options.add_argument(
        "--out",
        type=Path,
        default=Path("ray-pool.sqlite"),
        help="the pool to write, or to continue",
    )
    options.add_argument(
        "--base-url",
        nargs="+",
        help="servers of the model; without, each worker loads it",
    )
    options.add_argument(
        "--model", help="a GGUF, or the name that the servers have for theirs"
    )
    options.add_argument(
        "--key-variable",
        help="environment variable, on each machine, that holds the servers' key",
    )
    options.add_argument(
        "--ray",
        default="local",
        help="local starts a cluster, auto or HOST:PORT joins one",
    )
    options.add_argument("--workers", type=int, default=2)
    options.add_argument(
        "--concurrency",
        type=int,
        help="questions that each has in flight; 8 with servers, else 1",
    )
    options.add_argument(
        "--replicas",
        type=int,
        nargs="+",
        default=[1, 8, 64],
        help="of the large recording",
    )
    options.add_argument(
        "--price", type=float, help="what a replica costs an hour, to reckon with"
    )
    given = options.parse_args()

    make_model = partial(made, given.model, given.base_url, given.key_variable)
    concurrency = given.concurrency or (8 if given.base_url else 1)
    workers = RayWorkers(given.ray, given.workers, concurrency, make_model=make_model)
    questions = read_questions(given.data, limit=given.questions)
    clock = Clock()
    with make_model() as model:  # only describes itself, and answers nothing
        pool = record_pool(
            model,
            questions,
            given.out,
            samples=given.samples,
            workers=workers,
            on_question=clock,
            on_notice=print,
        )
    replicas = len(given.base_url or ()) or given.workers
    done = clock.at_last - clock.held
    print(
        f"{done} questions of {given.samples} responses by {given.workers} workers; "
        f"{given.out} has {len(pool.questions)}"
    )
    if done < 2:
        sys.exit(
            "error: nothing was left to measure; give another --out, or more "
            "--questions"
        )
    report(pool, clock, given, replicas)


def report(pool: Pool, clock: Clock, given: Any, replicas: int) -> None:
    """Print the measurements and the estimate for a large recording, with its cost if a
    price is given.
    """
    responses = [one for question in pool.questions for one in question.responses]
    tokens = sum(one.completion_tokens for one in responses) / len(responses)
    size = given.out.stat().st_size / len(responses)
    counted = (clock.at_last - clock.at_first) * given.samples
    # without the start of the workers
    each = counted / (clock.last - clock.first) * tokens / replicas
    busy = clock.busy / counted * SAMPLES
    print(
        f"{clock.first - clock.begun:.1f} s to the first answer, then {each:,.0f} "
        f"tokens/s from each of {replicas} replicas"
    )
    print(f"{tokens:.0f} tokens and {size:,.0f} bytes a response")
    total = QUESTIONS * SAMPLES
    hours = total * tokens / each / 3600
    print(
        f"{QUESTIONS:,} questions of {SAMPLES} responses: {total * tokens / 1e9:.2f} "
        f"billion tokens, {hours:,.0f} replica-hours, {total * size / 1e9:,.0f} GB of "
        "pool"
    )
    print(
        f"  this process needs {1e3 * busy:.1f} ms of a processor for each: "
        f"{QUESTIONS * busy / 3600:.1f} hours at least"
    )
    for count in given.replicas:
        money = (
            ""
            if given.price is None
            else f", {hours * given.price:,.2f} at {given.price:g} a replica-hour"
        )
        waits = (
            ", waiting for this process"
            if hours / count < QUESTIONS * busy / 3600
            else ""
        )
        print(f"  {count:4} replicas: {hours / count:,.1f} hours{money}{waits}")


if __name__ == "__main__":
    try:
        main()
    except ReASCError as error:
        sys.exit(f"error: {error}")
