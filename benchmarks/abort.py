"""What a real llama-server generates after open samples were cut off, and what one
request for n samples saves.

python -m benchmarks.abort             both tables, on the shipped model made endless
python -m benchmarks.abort --quick     one round, shorter
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from langchain_core.messages import AIMessage
from langchain_reasc_openai import ChatOpenAICompatible

from benchmarks.settings import CELLS, QUESTION, Settings
from tests.servers.llama_server import LlamaServer, llama_server

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


def cut_off(
    model: ChatOpenAICompatible,
    server: LlamaServer,
    *,
    tokens: int,
    after: int,
    seed: int,
) -> Aborted:
    """Draw samples of ``tokens`` tokens, and cancel them when the server has generated
    ``after``.
    """
    begun = server.generated()
    with model.sample(QUESTION, n=SAMPLES, first=seed) as samples:
        while (live := server.generating())[1] < after:
            time.sleep(0.001)
        samples.cancel()
        decided = time.perf_counter()
        for _ in samples:
            pass
    server.wait_until_idle()
    idle = time.perf_counter() - decided
    before = live[1]
    return Aborted(
        before, server.generated() - begun - before, SAMPLES * tokens - before, idle
    )


@contextmanager
def endless_server(
    folder: Path | None, *, tokens: int, per_request: int
) -> Iterator[tuple[LlamaServer, ChatOpenAICompatible]]:
    """A llama-server with the shipped model made endless, and a chat model over it."""
    path = Settings(folder=folder, quick=True).endless_shipped_path
    options = {
        "max_tokens": tokens,
        "logprobs": True,
        "top_logprobs": 5,
        "seed": 0,
        "samples_per_request": per_request,
    }
    with llama_server(path, slots=SAMPLES, cells=CELLS, flash_attn="auto") as server:
        # a server elsewhere would not keep us from deciding
        if hasattr(os, "setpriority"):
            os.setpriority(os.PRIO_PROCESS, server.pid, 10)
        with ChatOpenAICompatible(
            base_url=server.url,
            model=server.name,
            preset="llama-server",
            **options,  # type: ignore[arg-type]
        ) as model:
            yield server, model


def measure_aborts(
    *,
    rounds: int,
    tokens: int,
    after: int,
    per_request: int = 1,
    folder: Path | None = None,
) -> list[Aborted]:
    """Cut off samples on a server of its own, after a first time that warms it up."""
    with endless_server(folder, tokens=tokens, per_request=per_request) as (
        server,
        model,
    ):
        return [
            cut_off(model, server, tokens=tokens, after=after, seed=SAMPLES * at)
            for at in range(rounds + 1)
        ][1:]


def measure_requests(*, rounds: int, folder: Path | None = None) -> Iterator[str]:
    """Draw samples of prompts that the server has not seen, in one request and in
    several; gives table rows.
    """
    for per_request in (1, SAMPLES):
        prefilled, seconds = [], []
        with endless_server(folder, tokens=64, per_request=per_request) as (
            server,
            model,
        ):
            for at in range(rounds + 1):
                computed, begun = server.prefilled(), time.perf_counter()
                drawn = list(model.sample(f"{per_request} {at} {LONG}", n=SAMPLES))
                assert all(isinstance(message, AIMessage) for _, message in drawn)
                seconds.append(time.perf_counter() - begun)
                prefilled.append(server.prefilled() - computed)
        times = f"{statistics.median(seconds[1:]) * 1000:.0f} ms"
        yield f"| {per_request} | {statistics.median(prefilled[1:]):.0f} | {times} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both tables; returns 1 where too much was generated after the decision."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.abort", description=__doc__
    )
    parser.add_argument(
        "--quick", action="store_true", help="one round of short samples"
    )
    quick = parser.parse_args(arguments).quick
    rounds, tokens = (1, 400) if quick else (7, 900)
    print(
        f"{SAMPLES} samples of {tokens} tokens, cut off at a third, {rounds} rounds "
        "each\n"
    )
    print(
        "| per request | tokens before | after | would have been | share | idle after |"
    )
    print("|---:|---:|---:|---:|---:|---:|")
    shares = []
    for per_request in (1, SAMPLES):
        aborts = measure_aborts(
            rounds=rounds,
            tokens=tokens,
            after=SAMPLES * tokens // 3,
            per_request=per_request,
        )
        for one in aborts:
            idle = f"{one.seconds * 1000:.0f} ms"
            print(
                f"| {per_request} | {one.before} | {one.after} | {one.would_be} | "
                f"{one.share:.2%} | {idle} |"
            )
        shares.append(
            sum(one.after for one in aborts) / sum(one.would_be for one in aborts)
        )
        worst = max(one.share for one in aborts)
        print(
            (
                f"| {per_request} | | | all rounds, worst round | {shares[-1]:.2%}, "
                f"{worst:.2%} | |"
            ),
            flush=True,
        )
    print(f"\ngoal: under {GOAL:.0%}\n")
    print(
        f"{SAMPLES} samples of 64 tokens of a new prompt, medians of {rounds} rounds\n"
    )
    print("| per request | prompt tokens computed | time |\n|---:|---:|---:|")
    for line in measure_requests(rounds=rounds):
        print(line, flush=True)
    return int(max(shares) >= GOAL)


if __name__ == "__main__":
    sys.exit(main())
