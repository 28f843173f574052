"""Resident memory of a fresh process beyond weights, KV cache and compute buffers."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.rounds import Spread
from benchmarks.settings import Settings
from benchmarks.table import Below, Row

__all__ = ["resident"]

_MEGABYTE: Final = 1e6
_BUFFER: Final = re.compile(r"(\S+)\s+(model|KV|compute) buffer size\s*=\s*([\d.]+) MiB")
"""What llama.cpp logs about each buffer it allocates."""

_PROGRAM: Final = """
import json, sys
from pathlib import Path

def resident():
    at = lambda kinds: sum(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(kinds)) * 1024
    return at(("RssAnon", "RssFile", "RssShmem"))

def areas():
    for line in open("/proc/self/smaps"):
        words = line.split()
        if "-" in words[0]:
            path, rights = " ".join(words[5:]), words[1]
        elif words[0] == "Size:":
            size = int(words[1]) * 1024
        elif words[0] == "Rss:":
            yield path, rights, size, int(words[1]) * 1024

def mapped(file):
    return sum(rss for path, _, _, rss in areas() if path == file)

def untouched():
    return sum(size - rss for path, rights, size, rss in areas() if not path and rights == "rw-p" and size >= 2**24)

options = json.loads(sys.argv[1])
bare = resident()
import langchain_reasc_llama_cpp
from langchain_reasc_llama_cpp import ChatLlamaCpp
import llama_cpp
imported, unrelated = resident(), untouched()
model = ChatLlamaCpp(verbose=True, **options)
question = "Why does it rain so often in the mountains? " * 19
for _, message in model.sample(question, n=8, max_tokens=24):
    pass
print(json.dumps({"bare": bare, "imported": imported, "worked": resident(), "untouched": untouched() - unrelated,
                  "weights": mapped(options["model_path"])}))
"""


def resident(settings: Settings) -> Iterator[Row]:
    """Memory of a process that has a model with n_ctx=8,192 and decoded eight answers to a prompt of 500 tokens."""
    goal = Below(200, " MB")
    context = 1024 if settings.quick else 8192
    vocabulary = settings.shape.vocabulary
    measure = f"resident memory over weights + KV + compute buffers, V = {vocabulary:,}, n_ctx = {context:,}, MB"
    if not Path("/proc/self/smaps").exists():
        yield Row(measure=measure, spread=None, goal=goal, note="needs Linux's /proc")
        return
    found = [_measure(settings, context) for _ in range(settings.rounds_or(3))]

    def spread(name: str) -> Spread:
        return Spread.of(one[name] for one in found)

    yield Row(
        measure=measure,
        spread=spread("over"),
        goal=goal,
        note="weights: the file's resident pages and what llama.cpp repacks; buffers as llama.cpp logs them, less "
        "what may not be resident of them, so the figure is an upper bound; it includes interpreter and imports",
    )
    for name, what in (
        ("interpreter", "of that, the bare interpreter"),
        ("imports", "of that, imports (LangChain, numpy, llama.cpp's library)"),
        ("ours", "of that, everything else (vocabulary, logits, our buffers)"),
        ("weights", "weights"),
        ("KV", "KV cache"),
        ("compute", "compute buffers"),
        ("untouched", "of those, not resident at most"),
        ("worked", "resident in all"),
    ):
        yield Row(measure=f"{what}, MB", spread=spread(name))


def _measure(settings: Settings, context: int) -> dict[str, float]:
    options = {
        "model_path": str(settings.model_path),
        "n_ctx": context,
        "n_threads": settings.threads,
        "n_gpu_layers": settings.n_gpu_layers,
        "flash_attn": settings.flash_attn,
    }
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps(options)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the measured process failed:\n{done.stderr[-2000:]}")
    return _account(json.loads(done.stdout.splitlines()[-1]), done.stderr)


def _account(seen: dict[str, int], log: str) -> dict[str, float]:
    """Megabytes by what holds them."""
    buffers = {"KV": 0.0, "compute": 0.0}
    copied = 0.0  # weights that are not the mapped file: repacked ones
    for where, kind, mebibytes in _BUFFER.findall(log):
        if not where.startswith("CPU") and not where.endswith("_Host"):
            continue  # in a GPU's own memory
        size = float(mebibytes) * 2**20
        if kind != "model":
            buffers[kind] += size
        elif "Mapped" not in where:
            copied += size
    weights = seen["weights"] + copied
    untouched = min(seen["untouched"], buffers["compute"])  # the KV cache is cleared, so all of it is resident
    over = seen["worked"] - weights - buffers["KV"] - (buffers["compute"] - untouched)
    found: dict[str, Any] = {
        "over": over,
        "interpreter": seen["bare"],
        "imports": seen["imported"] - seen["bare"],
        "ours": over - seen["imported"],
        "weights": weights,
        "worked": seen["worked"],
        "untouched": untouched,
        **buffers,
    }
    return {name: size / _MEGABYTE for name, size in found.items()}
