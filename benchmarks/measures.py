"""The measures by name, each run in a process of its own."""

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Final

from benchmarks import bare_pairs, batching, decode_rate, memory, overhead, peers, prompts
from benchmarks.settings import Settings
from benchmarks.table import Row

__all__ = ["MEASURES", "measured"]

MEASURES: Final[dict[str, Callable[[Settings], Iterator[Row]]]] = {
    "decode": decode_rate.large_model,
    "decode-shipped": decode_rate.tiny_model,
    "left-over": decode_rate.left_over,
    "llama-server": peers.against_llama_server,
    "llama-cpp-python": peers.against_llama_cpp_python,
    "batch": batching.large_model,
    "batch-shipped": batching.shipped_model,
    "prefix": prompts.shared_prefix,
    "memory": memory.resident,
    "step": decode_rate.our_share,
    "interference": prompts.interference,
    "attention": bare_pairs.attention,
    "builds": bare_pairs.builds,
    "method": overhead.method,
    "imports": overhead.imports,
}


def measured(name: str, settings: Settings) -> list[Row]:
    """Each thread that ever called llama.cpp leaves its OpenMP team behind, and too many of them halve the speed."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_rows, name, settings).result()


def _rows(name: str, settings: Settings) -> list[Row]:
    return list(MEASURES[name](settings))
