"""Which instructions llama.cpp was built for, and which of them this processor lacks."""

import ctypes
import os
import platform
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

__all__ = ["AMX", "Processor", "lacking", "libraries", "this_processor"]

AMX: Final = "AMX_INT8"

_FLAGS: Final = {
    **{"SSE3": "pni", "SSSE3": "ssse3", "AVX": "avx", "AVX2": "avx2", "F16C": "f16c", "FMA": "fma", "BMI2": "bmi2"},
    **{"AVX_VNNI": "avx_vnni", "AVX512": "avx512f", "AVX512_VBMI": "avx512vbmi", "AVX512_VNNI": "avx512_vnni"},
    **{"AVX512_BF16": "avx512_bf16", AMX: "amx_int8"},
    **{"FP16_VA": "asimdhp", "DOTPROD": "asimddp", "MATMUL_INT8": "i8mm", "SVE": "sve", "SME": "sme"},
}
"""What llama.cpp calls an instruction set (x86, then ARM) -> what Linux calls it in /proc/cpuinfo."""

_CPUINFO: Final = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Processor:
    """What is known of a processor.

    Attributes:
        name: what it calls itself.
        flags: Linux's names of what it can do; empty where that is not known.
    """

    name: str
    flags: frozenset[str]


def this_processor() -> Processor:
    """The processor of this machine. Its flags are known on Linux only."""
    try:
        with _CPUINFO.open(encoding="utf-8", errors="replace") as file:
            first = list(takewhile(str.strip, file))  # an empty line ends the first core; there may be hundreds
    except OSError:
        first = []
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first)}
    flags = fields.get("flags") or fields.get("Features") or ""
    return Processor(fields.get("model name") or platform.processor() or platform.machine(), frozenset(flags.split()))


def libraries(llama: Any) -> Path:
    """The folder of llama.cpp's libraries, where llama-cpp-python finds them."""
    return Path(os.environ.get("LLAMA_CPP_LIB_PATH") or Path(llama.__file__).parent / "lib")


def lacking(llama: Any) -> list[str]:
    """The instruction sets that llama.cpp was built for and this processor does not have; none where that is unknown.

    Nothing here runs an instruction that may be missing, as ``llama_print_system_info`` does: only libggml-cpu is built
    for a special processor, and its ``ggml_cpu_has_...`` return a constant of the build.
    """
    flags = this_processor().flags
    if not flags:
        return []
    try:
        library = ctypes.CDLL(str(libraries(llama) / "libggml-cpu.so"))
    except OSError:  # a build that brings one for each kind of processor, and chooses
        return []
    return [name for name, flag in _FLAGS.items() if flag not in flags and _built_for(library, name)]


def _built_for(library: Any, name: str) -> bool:
    built_for = getattr(library, f"ggml_cpu_has_{name.lower()}", None)
    return built_for is not None and bool(built_for())
