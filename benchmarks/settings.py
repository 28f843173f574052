"""What every measure is run with: options, models, contenders; and the machine that it
is run on.
"""

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from multiprocessing import get_context
from multiprocessing.managers import BaseManager
from pathlib import Path
from typing import Any, Final, cast

import gguf
from langchain_core.messages import HumanMessage
from langchain_reasc_llama_cpp import ChatLlamaCpp, embedded_model_path
from langchain_reasc_llama_cpp.native.bindings import library
from langchain_reasc_llama_cpp.native.safe_kernels import this_processor

from benchmarks.bare_loop import SAMPLING, BareLoop
from benchmarks.random_gguf import HALF_BILLION, Shape, cached_model

CELLS: Final = 8192
"""Tokens everybody's KV cache holds, unless a measure says otherwise."""

QUESTION: Final = (
    "Lena has 27 red cups and 14 blue cups. Lena buys 3 packs of 6 cups. "
    "How many cups does Lena have now?"
)
_SMALL: Final = Shape(
    layers=2, width=64, heads=4, kv_heads=2, hidden=128, vocabulary=2048
)
_LIBRARIES: Final = (
    "LLAMA_CPP_LIB_PATH"  # llama-cpp-python looks for llama.cpp's libraries there
)
_NEVER_DRAWN: Final = (
    "ÿ"  # a token of the shipped model for a byte that no UTF-8 text has
)


def _cores() -> int:
    return (
        len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1
    )


def default_threads() -> int:
    """All of a few cores; of more, half, as the rest are mostly hyper-threads."""
    return _cores() if _cores() <= 4 else _cores() // 2


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to measure: the options of the command line.

    Attributes:
        flash_attn: for everybody; None leaves it to llama.cpp.
        rounds: rounds of each measure; None: what the measure thinks right.
        libraries: a build of llama.cpp to run the bare loop with, instead of
            llama-cpp-python's own.
    """

    threads: int = default_threads()
    shipped_threads: int = 1
    n_gpu_layers: int = 0
    flash_attn: bool | None = False
    rounds: int | None = None
    quick: bool = False
    folder: Path | None = None
    quantization: str = "Q4_0"
    llama_server: Path | None = None
    other_build: Path | None = None
    libraries: Path | None = None

    @property
    def of_llama_cpp(self) -> dict[str, Any]:
        """The options that llama.cpp itself is given, whoever runs it."""
        return {"n_gpu_layers": self.n_gpu_layers, "flash_attn": self.flash_attn}

    def rounds_or(self, usual: int) -> int:
        """Rounds of a measure that usually takes this many."""
        return self.rounds or (1 if self.quick else usual)

    def tokens_or(self, usual: int) -> int:
        """Tokens of a response that usually has this many."""
        return min(usual, 8) if self.quick else usual

    @property
    def shape(self) -> Shape:
        """The shape of the random model."""
        return _SMALL if self.quick else HALF_BILLION

    @property
    def shape_name(self) -> str:
        """The random model in words."""
        return f"{'small' if self.quick else '0.5 B'} shape {self.quantization}"

    @cached_property
    def model_path(self) -> Path:
        """The random model."""
        return cached_model(
            self.folder and self.folder.resolve(),
            shape=self.shape,
            quantization=self.quantization,
        )

    @cached_property
    def endless_shipped_path(self) -> Path:
        """The shipped model, its end token renamed, so that all its responses are
        equally long.
        """
        path = self.model_path.with_name(f"endless-{embedded_model_path().name}")
        unfinished = path.with_suffix(".part")
        shutil.copyfile(embedded_model_path(), unfinished)
        fields = gguf.GGUFReader(unfinished, "r+").fields
        tokens, end = (
            fields["tokenizer.ggml.tokens"],
            fields["tokenizer.ggml.eos_token_id"].parts[-1],
        )
        old, end[0] = int(end[0]), tokens.contents().index(_NEVER_DRAWN)
        tokens.parts[tokens.data[old]][:] = ord("x")
        unfinished.replace(path)
        return path

    def for_shipped_model(self) -> "Settings":
        """The same with the shipped model's threads."""
        return replace(self, threads=self.shipped_threads)


@contextmanager
def open_ours(
    settings: Settings, path: Path | None, **fields: Any
) -> Iterator[ChatLlamaCpp]:
    """Our chat model on a GGUF, with everybody's threads and sampling; None: the
    shipped one, with its own sampling.
    """
    if path is not None:
        fields = {"model_path": path, **SAMPLING, **fields}
    with ChatLlamaCpp(
        **{**settings.of_llama_cpp, "n_threads": settings.threads, "seed": 1, **fields}
    ) as model:
        yield model


@contextmanager
def open_bare(settings: Settings, path: Path, *, sequences: int) -> Iterator[BareLoop]:
    """The bare loop under the same settings, in a process of its own: two OpenMP teams
    in one slow each other down.
    """
    process = _BareProcess(ctx=get_context("spawn"))
    if settings.libraries:
        os.environ[_LIBRARIES] = str(settings.libraries)
    try:
        process.start()
    finally:
        if settings.libraries:
            del os.environ[_LIBRARIES]
    with process:
        options = {
            "sequences": sequences,
            "cells": CELLS,
            "threads": settings.threads,
            **settings.of_llama_cpp,
        }
        yield cast(BareLoop, process.BareLoop(path, **options))  # type: ignore[attr-defined]


class _BareProcess(BaseManager):
    """Runs a :class:`BareLoop` elsewhere."""


_BareProcess.register("BareLoop", BareLoop)


def shipped_questions(count: int) -> list[str]:
    """The first questions of the shipped model's test set."""
    lines = (
        embedded_model_path()
        .with_name("test.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()[:count]
    )
    return [json.loads(line)["question"] for line in lines]


def prompt_ids(model: ChatLlamaCpp, question: str) -> list[int]:
    """Token ids, as many as our prompt for the question has, for a contender that takes
    no messages.
    """
    size = model.get_num_tokens_from_messages([HumanMessage(question)])
    ids = model.get_token_ids(question)
    return (ids * (size // len(ids) + 1))[:size]


def check_tokens(who: str, counts: Sequence[int], wanted: int) -> None:
    """Refuse a comparison in which somebody generated less.

    Raises:
        RuntimeError: a response has another length.
    """
    if any(count != wanted for count in counts):
        raise RuntimeError(
            f"{who} generated {list(counts)} tokens where everybody was to generate "
            f"{wanted}"
        )


def describe_machine(settings: Settings) -> str:
    """Processor, cores, threads, load, operating system, versions and llama.cpp's
    build, one line each.
    """
    llama = library()
    about = Path("/proc/cpuinfo")
    lines = about.read_text().split("\n\n")[0].splitlines() if about.exists() else []
    model = [
        " ".join(line.replace(":", "").split())
        for line in lines
        if line.startswith(("cpu family", "model\t"))
    ]
    load = (
        f", load {os.getloadavg()[0]:.2f} before the run"
        if hasattr(os, "getloadavg")
        else ""
    )
    flash = {None: "left to llama.cpp", True: "on", False: "off"}[settings.flash_attn]
    installed = {
        each.metadata["name"].lower().replace("_", "-"): each.version
        for each in importlib.metadata.distributions()
    }
    packages = ("llama-cpp-python", "xllamacpp", "numpy", "langchain-core")
    return f"""\
processor: {this_processor().name} ({", ".join(model)}); {_cores()} cores available{load}
threads: {settings.threads} ({settings.shipped_threads} for the shipped model); flash attention: {flash}
layers on a GPU: {settings.n_gpu_layers} (llama-cpp-python built with GPU support: {llama.llama_supports_gpu_offload()})
cards: {"; ".join(_cards()) or "none found by nvidia-smi"}
system: {platform.platform()}; Python {platform.python_version()}
versions: {", ".join(f"{name} {installed.get(name, 'not installed')}" for name in packages)}
llama-cpp-python's llama.cpp: {llama.llama_print_system_info().decode().rstrip(" |")}"""


def _cards() -> list[str]:
    """Names of NVIDIA cards and their drivers, as nvidia-smi tells them."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    answer = subprocess.run(
        query, capture_output=True, text=True, check=False, timeout=30
    )
    return answer.stdout.strip().splitlines() if answer.returncode == 0 else []
