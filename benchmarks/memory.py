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
from benchmarks.table import Below, Row

__all__ = ["resident"]

_MEGABYTE: Final = 1e6
_COPIED: Final = re.compile(r" (CPU\S*) model buffer size\s*=\s*([\d.]+) MiB")
"""What llama.cpp logs of weights in main memory; those it maps are counted by the file's pages."""

_PROGRAM: Final = """
import ctypes, json, sys
from pathlib import Path

options, absent = json.loads(sys.argv[1]), set(json.loads(sys.argv[2]))
KV, COMPUTE = 0, 2  # ggml_backend_buffer_usage
buffers = {}  # address -> what it is for

class Absent:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

def resident():
    kinds = ("RssAnon", "RssFile", "RssShmem")
    return sum(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(kinds)) * 1024

def mapped(file):
    found = 0
    for line in open("/proc/self/smaps"):
        words = line.split()
        if "-" in words[0]:
            ours = " ".join(words[5:]) == file
        elif words[0] == "Rss:" and ours:
            found += int(words[1]) * 1024
    return found

def pages(start, size):
    start, stop = start // 4096 * 4096, start + size
    there = (ctypes.c_ubyte * (-(-(stop - start) // 4096)))()
    assert ctypes.CDLL(None).mincore(ctypes.c_void_p(start), ctypes.c_size_t(len(there) * 4096), there) == 0
    return sum(page & 1 for page in there) * 4096

def ggml(function, buffer, kind=ctypes.c_size_t):
    found = getattr(llama_cpp.llama_cpp._lib, f"ggml_backend_buffer_{function}")
    found.argtypes, found.restype = [ctypes.c_void_p], kind
    return found(buffer)

@ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p)
def note(tensor, ask, _):  # asked by llama.cpp of each tensor it computes; no: it need not wait for us
    buffer = ctypes.c_void_p.from_address(tensor + 8).value  # ggml_tensor.buffer
    if buffer and buffer not in buffers:
        buffers[buffer] = ggml("get_usage", buffer, ctypes.c_int) if ggml("is_host", buffer, ctypes.c_bool) else None
    return False

def watched():
    parameters = default()
    parameters.cb_eval = ctypes.cast(note, type(parameters.cb_eval))
    return parameters

def held(usage, size_of):
    return sum(size_of(ggml("get_base", each), ggml("get_size", each)) for each in buffers if buffers[each] == usage)

sys.meta_path.insert(0, Absent)
bare = resident()
from langchain_core.language_models import BaseChatModel
import llama_cpp
others = resident()
from langchain_reasc_llama_cpp import ChatLlamaCpp
default, llama_cpp.llama_context_default_params = llama_cpp.llama_context_default_params, watched
imported = resident()
model = ChatLlamaCpp(verbose=True, **options)
question = "Why does it rain so often in the mountains? " * 19
for _, message in model.sample(question, n=8, max_tokens=24):
    pass
print(json.dumps({
    "interpreter": bare, "others": others - bare, "ours": imported - others, "worked": resident(), "weights": mapped(options["model_path"]),
    "KV": held(KV, pages), "compute": held(COMPUTE, pages), "reserved": held(COMPUTE, lambda start, size: size),
}))
"""


def resident(settings: Settings) -> Iterator[Row]:
    """Memory of a process that has a model with n_ctx=8,192 and decoded eight answers to a prompt of 500 tokens."""
    goal = Below(150, " MB", inclusive=True)
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
        note="weights: the file's resident pages and what llama.cpp repacks; of the buffers what is resident. Interpreter "
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
        yield Row(measure=f"{what}, MB", spread=spread(name))


def _measure(settings: Settings, context: int) -> dict[str, float]:
    """Megabytes by what holds them."""
    options = {
        "model_path": str(settings.model_path),
        "n_ctx": context,
        "n_threads": settings.threads,
        "n_gpu_layers": settings.n_gpu_layers,
        "flash_attn": settings.flash_attn,
    }
    command = [sys.executable, "-c", _PROGRAM, json.dumps(options), json.dumps(_not_required())]
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
