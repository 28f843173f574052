"""Resident memory of a fresh process beyond weights, KV cache and compute buffers."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks.rounds import Spread
from benchmarks.settings import Settings
from benchmarks.table import Goal, Row

__all__ = ["resident"]

_MEGABYTE: Final = 1e6
_COPIED: Final = re.compile(r" (CPU\S*) model buffer size\s*=\s*([\d.]+) MiB")
"""What llama.cpp logs of weights in main memory; those it maps are counted by the file's pages."""

_PROGRAM: Final = Path(__file__).with_name("memory_process.py")


def resident(settings: Settings) -> Iterator[Row]:
    """Memory of a process that has a model with n_ctx=8,192 and decoded eight answers to a prompt of 500 tokens."""
    goal = Goal("≤", 150, " MB")
    context = 1024 if settings.quick else 8192
    vocabulary = settings.shape.vocabulary
    measure = f"resident memory over weights + KV + compute buffers, V = {vocabulary:,}, n_ctx = {context:,}, MB"
    if not Path("/proc/self/smaps").exists():
        yield Row(measure, None, goal, "needs Linux's /proc")
        return
    found = [_measure(settings, context) for _ in range(settings.rounds_or(3))]

    def spread(name: str) -> Spread:
        return Spread.of(one[name] for one in found)

    yield Row(
        measure,
        spread("over"),
        goal,
        "weights: the file's resident pages and what llama.cpp repacks; of the buffers what is resident. Interpreter "
        "and imports included, of packages that langchain-reasc[llama-cpp] requires: others are as if not installed",
    )
    for name, what in (
        ("interpreter", "of that, the bare interpreter"),
        ("others", "of that, imports of LangChain, numpy and llama-cpp-python"),
        ("ours", "of that, import of this backend"),
        ("rest", "of that, everything else (llama.cpp's vocabulary and scratch, logits, our buffers)"),
        ("weights", "weights"),
        ("KV", "KV cache"),
        ("compute", "compute buffers, as far as resident"),
        ("reserved", "compute buffers, as llama.cpp reserves them"),
        ("worked", "resident in all"),
    ):
        yield Row(f"{what}, MB", spread(name))


def _measure(settings: Settings, context: int) -> dict[str, float]:
    """Megabytes by what holds them."""
    options = {
        "model_path": str(settings.model_path),
        "n_ctx": context,
        "n_threads": settings.threads,
        "n_gpu_layers": settings.n_gpu_layers,
        "flash_attn": settings.flash_attn,
    }
    command = [sys.executable, str(_PROGRAM), json.dumps(options), json.dumps(_not_required())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the measured process failed:\n{done.stderr[-2000:]}")
    seen = json.loads(done.stdout.splitlines()[-1])
    seen["weights"] += sum(float(size) * 2**20 for where, size in _COPIED.findall(done.stderr) if "Mapped" not in where)
    seen["over"] = seen["worked"] - seen["weights"] - seen["KV"] - seen["compute"]
    seen["rest"] = seen["over"] - seen["interpreter"] - seen["others"] - seen["ours"]
    return {name: size / _MEGABYTE for name, size in seen.items()}


def _not_required() -> list[str]:
    """Top-level packages that are installed here, and that somebody who installs the backend alone would not have."""
    required, left = set[str](), [Requirement("langchain-reasc[llama-cpp]")]
    while left:
        wanted = left.pop()
        if (name := canonicalize_name(wanted.name)) not in required:
            required.add(name)
            needed = map(Requirement, requires(name) or ())
            extras = ("", *wanted.extras)
            left += [
                each
                for each in needed
                if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in extras)
            ]
    return [
        package
        for package, owners in packages_distributions().items()
        if not any(canonicalize_name(owner) in required for owner in owners)
    ]
