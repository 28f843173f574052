"""Runs the measures and prints a table of each.

python -m benchmarks                        all of them
python -m benchmarks decode memory          some of them
python -m benchmarks --quick                that everything runs, in a minute; the figures mean nothing
"""

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from benchmarks import busy, decoding, overhead, peers
from benchmarks.random_gguf import QUANTIZATIONS
from benchmarks.settings import Settings, default_threads, describe_machine
from benchmarks.table import Row, render, rows_of

MEASURES: Final[dict[str, Callable[[Settings], Iterator[Row]]]] = {
    "decode": decoding.large_model,
    "decode-shipped": decoding.tiny_model,
    "left-over": decoding.left_over,
    "llama-server": peers.against_llama_server,
    "llama-cpp-python": peers.against_llama_cpp_python,
    "batch": decoding.batch,
    "batch-shipped": decoding.batch_shipped,
    "prefix": decoding.shared_prefix,
    "memory": overhead.resident,
    "step": decoding.our_share,
    "interference": decoding.interference,
    "busy-small": busy.small_model,
    "busy": busy.large_model,
    "busy-shipped": busy.shipped_model,
    "attention": decoding.attention,
    "builds": decoding.builds,
    "method": overhead.method,
    "imports": overhead.imports,
}
_FLASH: Final = {"auto": None, "on": True, "off": False}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; returns 1 if a measure failed."""
    given = vars(_parser().parse_args(arguments))
    names, flash = given.pop("measures"), given.pop("flash_attn")
    settings = Settings(
        **given,
        flash_attn=_FLASH[flash or ("auto" if given["n_gpu_layers"] else "off")],
    )
    print(describe_machine(settings), flush=True)
    if settings.quick:
        print("QUICK RUN: these figures mean nothing.", flush=True)
    failed = False
    for name in names or MEASURES:
        begun = time.monotonic()
        try:
            rows = measured(name, settings)
        except Exception as error:
            failed = True
            traceback.print_exc()
            rows = [Row(name, None, note=f"failed: {error}".splitlines()[0])]
        print(
            f"\n{name}, {time.monotonic() - begun:.0f} s\n\n{render(rows)}", flush=True
        )
    return int(failed)


def measured(name: str, settings: Settings) -> list[Row]:
    """Each thread that ever called llama.cpp leaves its OpenMP team behind, and too
    many of them halve the speed.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(rows_of, MEASURES[name], settings).result()


def _measure(name: str) -> str:
    if name not in MEASURES:
        raise argparse.ArgumentTypeError(
            f"unknown measure {name!r}; choose from {', '.join(MEASURES)}"
        )
    return name


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measures the llama.cpp backend beside its peers.",
    )
    add, names = parser.add_argument, ", ".join(MEASURES)
    add(
        "measures",
        nargs="*",
        type=_measure,
        metavar="MEASURE",
        help=f"some of {names}; default: all",
    )
    add(
        "--quick",
        action="store_true",
        help="a small model and one round: shows that everything runs",
    )
    add(
        "--rounds",
        type=int,
        help="rounds of every measure, instead of what each thinks right",
    )
    add(
        "--threads",
        type=int,
        default=default_threads(),
        help="CPU threads of everybody (%(default)s)",
    )
    add(
        "--shipped-threads",
        type=int,
        default=1,
        help="the same on the shipped model (%(default)s)",
    )
    gpu = "layers on a GPU, for everybody; -1 for all. Needs llama-cpp-python built for it, and so a --llama-server"
    add("--n-gpu-layers", type=int, default=0, help=gpu)
    flash = "for everybody; default: off on a processor, where llama.cpp is slower with it, auto on a GPU"
    add("--flash-attn", choices=_FLASH, help=flash)
    add(
        "--quantization",
        choices=QUANTIZATIONS,
        default="Q4_0",
        help="of the random model (%(default)s)",
    )
    add(
        "--folder",
        type=Path,
        help="where random models are kept; default: a temporary folder",
    )
    add(
        "--llama-server",
        type=Path,
        help="an executable to measure instead of the xllamacpp wheel's",
    )
    other = "another build's shared libraries, of the same version of llama-cpp-python, for the measure 'builds'"
    add("--other-build", type=Path, metavar="FOLDER", help=other)
    return parser


if __name__ == "__main__":
    sys.exit(main())
