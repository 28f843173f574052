"""What a real llama-server generates after open samples were cut off, and what one request for n samples saves.

python -m benchmarks.abort             both tables, on the shipped model made endless
python -m benchmarks.abort --quick     one round, shorter
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_openai import ChatOpenAI
from langchain_reasc_openai.drawing.draw import Draw, SampleStream
from langchain_reasc_openai.drawing.drawn import Drawn
from langchain_reasc_openai.routing.replicas import ReplicaPool
from pydantic import SecretStr

from benchmarks.settings import CELLS, QUESTION, Settings

__all__ = ["Aborted", "measure_aborts", "measure_requests"]

GOAL: Final = 0.05
SAMPLES: Final = 8
LONG: Final = " ".join([QUESTION] * 12)


@dataclass(frozen=True)
class Aborted:
    """One round.

    Attributes:
        before: tokens that the server had generated when the decision fell.
        after: tokens that it generated later.
        would_be: tokens that it would have generated later.
        seconds: until the server was idle.
    """

    before: int
    after: int
    would_be: int
    seconds: float

    @property
    def share(self) -> float:
        """How much of what was to come came all the same."""
        return self.after / self.would_be


class Watched:
    """A llama-server whose own counts are read (its /slots and /metrics)."""

    def __init__(self, address: str) -> None:
        """Watch the server at an address."""
        self._address = address

    def generated(self) -> int:
        """Tokens of all requests that are over, cut off or not."""
        return self._metric("tokens_predicted_total")

    def prefilled(self) -> int:
        """Prompt tokens that were computed, and not taken from a cache."""
        return self._metric("prompt_tokens_total")

    def generating(self) -> tuple[int, int]:
        """Requests that run, and the tokens that they have generated."""
        slots = [slot for slot in json.loads(self._get("/slots")) if slot["is_processing"]]
        return len(slots), sum(part["n_decoded"] for slot in slots for part in slot["next_token"])

    def wait_until_idle(self) -> None:
        """Return when no request runs."""
        while self.generating()[0]:
            time.sleep(0.001)

    def _metric(self, name: str) -> int:
        lines = self._get("/metrics").decode().splitlines()
        return next(int(float(line.split()[1])) for line in lines if line.startswith(f"llamacpp:{name} "))

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(self._address + path, timeout=60) as answer:
            text: bytes = answer.read()
        return text


def cut_off(pool: ReplicaPool, server: Watched, *, tokens: int, after: int, per_request: int, seed: int) -> Aborted:
    """Draw samples of ``tokens`` tokens, and cancel them when the server has generated ``after``."""
    begun, seeds = server.generated(), range(seed, seed + SAMPLES)
    draw = Draw(pool, [HumanMessage(QUESTION)], n=SAMPLES, seeds=seeds, per_request=per_request)
    with SampleStream(draw.start, Drawn.outcome) as samples:
        while (live := server.generating())[1] < after:
            time.sleep(0.001)
        samples.cancel()
        decided = time.perf_counter()
        for _ in samples:
            pass
    server.wait_until_idle()
    idle = time.perf_counter() - decided
    before = live[1]
    return Aborted(before, server.generated() - begun - before, SAMPLES * tokens - before, idle)


@contextmanager
def watched_server(settings: Settings) -> Iterator[str]:
    """The wheel's llama-server with the endless model; gives its address."""
    options = {"path": str(settings.endless_shipped_path), "slots": SAMPLES, "cells": CELLS, "threads": 1}
    options |= {"n_gpu_layers": 0, "flash_attn": "auto", "watched": True}
    command = [sys.executable, "-m", "benchmarks.llama_server_process", json.dumps(options)]
    root = Path(__file__).parents[1]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=root, text=True, **pipes) as process:
        try:
            assert process.stdout is not None
            if hasattr(os, "setpriority"):  # a server elsewhere would not keep us from deciding
                os.setpriority(os.PRIO_PROCESS, process.pid, 10)
            yield json.loads(process.stdout.readline())["address"]
        finally:
            process.kill()


def pool_on(address: str, *, tokens: int) -> ReplicaPool:
    """A pool of the one server."""
    url = f"{address}/v1"
    model = ChatOpenAI(
        base_url=url, api_key=SecretStr("none"), model="shipped", max_tokens=tokens, logprobs=True, top_logprobs=5
    )
    return ReplicaPool([(url, model)])


def measure_aborts(
    *, rounds: int, tokens: int, after: int, per_request: int = 1, folder: Path | None = None
) -> list[Aborted]:
    """Cut off samples on a server of its own, after a first time that warms it up."""
    settings = Settings(folder=folder, quick=True)
    with watched_server(settings) as address, closing(pool_on(address, tokens=tokens)) as pool:
        server, options = Watched(address), {"tokens": tokens, "after": after, "per_request": per_request}
        done = [cut_off(pool, server, seed=SAMPLES * at, **options) for at in range(rounds + 1)]
    return done[1:]


def measure_requests(*, rounds: int, folder: Path | None = None) -> Iterator[str]:
    """Draw samples of prompts that the server has not seen, in one request and in several; gives table rows."""
    settings = Settings(folder=folder, quick=True)
    with watched_server(settings) as address, closing(pool_on(address, tokens=64)) as pool:
        server = Watched(address)
        for per_request in (1, SAMPLES):
            prefilled, seconds = [], []
            for at in range(rounds + 1):
                messages: list[BaseMessage] = [HumanMessage(f"{per_request} {at} {LONG}")]
                computed, begun = server.prefilled(), time.perf_counter()
                draw = Draw(pool, messages, n=SAMPLES, per_request=per_request)
                drawn = list(SampleStream(draw.start, Drawn.outcome))
                assert all(isinstance(message, AIMessage) for _, message in drawn)
                seconds.append(time.perf_counter() - begun)
                prefilled.append(server.prefilled() - computed)
            times = f"{statistics.median(seconds[1:]) * 1000:.0f} ms"
            yield f"| {per_request} | {statistics.median(prefilled[1:]):.0f} | {times} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both tables; returns 1 where too much was generated after the decision."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.abort", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of short samples")
    quick = parser.parse_args(arguments).quick
    rounds, tokens = (1, 400) if quick else (7, 900)
    print(f"{SAMPLES} samples of {tokens} tokens, cut off at a third, {rounds} rounds each\n")
    print("| per request | tokens before | after | would have been | share | idle after |")
    print("|---:|---:|---:|---:|---:|---:|")
    shares = []
    for per_request in (1, SAMPLES):
        aborts = measure_aborts(rounds=rounds, tokens=tokens, after=SAMPLES * tokens // 3, per_request=per_request)
        for one in aborts:
            idle = f"{one.seconds * 1000:.0f} ms"
            print(f"| {per_request} | {one.before} | {one.after} | {one.would_be} | {one.share:.2%} | {idle} |")
        shares.append(sum(one.after for one in aborts) / sum(one.would_be for one in aborts))
        worst = max(one.share for one in aborts)
        print(f"| {per_request} | | | all rounds, worst round | {shares[-1]:.2%}, {worst:.2%} | |", flush=True)
    print(f"\ngoal: under {GOAL:.0%}\n")
    print(f"{SAMPLES} samples of 64 tokens of a new prompt, medians of {rounds} rounds\n")
    print("| per request | prompt tokens computed | time |\n|---:|---:|---:|")
    for line in measure_requests(rounds=rounds):
        print(line, flush=True)
    return int(max(shares) >= GOAL)


if __name__ == "__main__":
    sys.exit(main())
