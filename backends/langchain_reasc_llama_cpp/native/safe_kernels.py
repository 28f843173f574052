"""Avoid kernels and files that crash the process: try them once in a child process, and
remember the outcome.

llama.cpp's AMX kernels die with SIGILL if an older GCC compiled them
(``backends/llama_cpp_build.cmake`` says why). A wheel does not say which compiler built
it. So if a build has these kernels and a model would use them, a child process first
decodes with a small quantised model. This happens once per build and processor, and
takes a second or two.

llama.cpp also aborts on many errors in a GGUF. So a child process first loads each file
whose header is new.
"""

import ctypes
import hashlib
import json
import logging
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, Literal

from langchain_reasc.exceptions import (
    ConfigurationError,
    ModelFileError,
    UnsupportedProcessorError,
)
from langchain_reasc.files import write_atomically
from langchain_reasc_llama_cpp.native.gguf_file import GGUFHeader, MetadataValue
from langchain_reasc_llama_cpp.native.model_files import (
    embedded_model_path,
    file_sha256,
)

AMX: Final = "AMX_INT8"

_FLAGS: Final = {
    **{
        "SSE3": "pni",
        "SSSE3": "ssse3",
        "AVX": "avx",
        "AVX2": "avx2",
        "F16C": "f16c",
        "FMA": "fma",
        "BMI2": "bmi2",
    },
    **{
        "AVX_VNNI": "avx_vnni",
        "AVX512": "avx512f",
        "AVX512_VBMI": "avx512vbmi",
        "AVX512_VNNI": "avx512_vnni",
    },
    **{"AVX512_BF16": "avx512_bf16", AMX: "amx_int8"},
    **{
        "FP16_VA": "asimdhp",
        "DOTPROD": "asimddp",
        "MATMUL_INT8": "i8mm",
        "SVE": "sve",
        "SME": "sme",
    },
}
"""Instruction set in llama.cpp (x86, then ARM) -> its name in Linux's /proc/cpuinfo."""

_CPUINFO: Final = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Processor:
    """A processor.

    Attributes:
        name: its name.
        flags: Linux's names of its features; empty if unknown.
    """

    name: str
    flags: frozenset[str]


def this_processor() -> Processor:
    """Return the processor of this machine. Its flags are known on Linux only."""
    try:
        with _CPUINFO.open(encoding="utf-8", errors="replace") as file:
            # an empty line ends the first core; there may be hundreds
            first = list(takewhile(str.strip, file))
    except OSError:
        first = []
    fields = {
        name.strip(): value.strip()
        for name, _, value in (line.partition(":") for line in first)
    }
    flags = fields.get("flags") or fields.get("Features") or ""
    return Processor(
        fields.get("model name") or platform.processor() or platform.machine(),
        frozenset(flags.split()),
    )


def libraries(llama: Any) -> Path:
    """Return the folder in which llama-cpp-python finds llama.cpp's libraries."""
    return Path(
        os.environ.get("LLAMA_CPP_LIB_PATH") or Path(llama.__file__).parent / "lib"
    )


def lacking(llama: Any) -> list[str]:
    """Return the instruction sets that llama.cpp was built for and this processor
    lacks; empty if unknown.

    This runs no instruction that may be missing, unlike ``llama_print_system_info``:
    only libggml-cpu is built for a special processor, and its ``ggml_cpu_has_...``
    return constants of the build.
    """
    flags = this_processor().flags
    if not flags:
        return []
    try:
        library = ctypes.CDLL(str(libraries(llama) / "libggml-cpu.so"))
    except OSError:  # a build that brings one for each kind of processor, and chooses
        return []
    return [
        name
        for name, flag in _FLAGS.items()
        if flag not in flags and _built_for(library, name)
    ]


def _built_for(library: Any, name: str) -> bool:
    built_for = getattr(library, f"ggml_cpu_has_{name.lower()}", None)
    return built_for is not None and bool(built_for())


_PROGRAM: Final = Path(__file__).with_name("trial.py")
_SECONDS: Final = 60.0
_TOO_MUCH: Final = "a trial in a child process needed more memory than 1 GiB beside the size of the file"
_DEADLY: Final = (
    "SIGILL",
    "SIGSEGV",
    "SIGBUS",
    "SIGFPE",
    "SIGABRT",
)  # others, such as SIGKILL, have other causes
_AMX_TYPES: Final = frozenset({2, 3, 8, 12, 13, 14, 23})
"""ggml types with AMX kernels (``qtype_has_amx_kernels``): Q4_0, Q4_1, Q8_0, Q4_K,
Q5_K, Q6_K, IQ4_XS.
"""
_REBUILD: Final = "pip install --force-reinstall --no-cache-dir --no-binary llama-cpp-python llama-cpp-python"
_WITHOUT_AMX: Final = f"CFLAGS=-U__AMX_INT8__ CXXFLAGS=-U__AMX_INT8__ {_REBUILD}"

_logger: Final = logging.getLogger("langchain_reasc.llama_cpp")
_trying: Final = threading.Lock()


@dataclass(frozen=True)
class _Outcome:
    """The result of a trial.

    Attributes:
        kernels: the kernels that may be used: all, only the plain ones, or none.
        why: what went wrong with the others; empty if nothing did.
        tried: whether there was a trial.
    """

    kernels: Literal["all", "plain", "none"]
    why: str = ""
    tried: bool = True


class _NotTried(Exception):
    """A trial could not be run. The message says why."""


def check_processor(llama: Any) -> None:
    """Refuse a build of llama.cpp that would crash on this processor. Call this before
    anything else of llama.cpp.

    Raises:
        UnsupportedProcessorError: llama.cpp was built for instructions that this
            processor lacks.
    """
    missing = lacking(llama)
    if missing == [AMX]:  # which llama.cpp asks the kernel for, so it may well work
        with _trying:
            outcome = _outcome(llama)
        missing = [] if outcome.tried and outcome.kernels != "none" else missing
    if missing:
        raise UnsupportedProcessorError(
            f"the llama.cpp in {libraries(llama)} was built for a processor with "
            f"{', '.join(missing)}, which this one ({this_processor().name}) lacks, so "
            f"it would end the process. Build it on this machine: {_REBUILD}"
        )


def may_repack(llama: Any, header: GGUFHeader) -> bool:
    """Return whether a model may be loaded with ``use_extra_bufts``, so that weights
    are repacked for AMX kernels.

    Raises:
        UnsupportedProcessorError: llama.cpp's plain kernels crash too.
    """
    if not _reports_amx(llama) or not _would_use_amx(header):
        return True
    with _trying:
        outcome = _outcome(llama)
    if outcome.kernels == "none":
        raise UnsupportedProcessorError(
            f"the llama.cpp in {libraries(llama)} cannot be used on this processor "
            f"({this_processor().name}): {outcome.why}, and again without them. Build "
            f"it on this machine: {_WITHOUT_AMX}"
        )
    if outcome.kernels == "plain":
        _logger.warning(
            "%s is loaded with use_extra_bufts=False, which is slower, because the "
            "AMX kernels of the llama.cpp in %s are not safe: %s. Build it without "
            "them: %s",
            *(header.path.name, libraries(llama), outcome.why, _WITHOUT_AMX),
        )
    return outcome.kernels == "all"


def check_loading(
    llama: Any, header: GGUFHeader, overrides: Mapping[str, MetadataValue]
) -> None:
    """Refuse a file that would crash the process. A child process loads it first,
    unless its header is known.

    Raises:
        ModelFileError: the child process died.
        ConfigurationError: the child process died only with these overrides.
    """
    if header.path == embedded_model_path() and not overrides:
        return
    if overrides:
        check_loading(llama, header, {})
    given = json.dumps(overrides, sort_keys=True)
    memory = _cached("llama-cpp-loads", llama, "*llama*", header.sha256, given)
    if memory is not None and memory.exists():
        return
    try:
        with _trying:
            wrong = _tried(llama, header.path, given, "any")
    except _NotTried as error:
        return _logger.info("%s is loaded without a trial: %s", header.path, error)
    if wrong and overrides:
        raise ConfigurationError(
            f"kv_overrides: {given} would end the process: {wrong}; leave it out"
        )
    if wrong:
        raise ModelFileError(
            f"{header.path} is damaged, or not for this llama.cpp, and would end the "
            f"process: {wrong}"
        )
    _remember(memory, _Outcome("all"))


def _reports_amx(llama: Any) -> bool:
    return f"{AMX} = 1".encode() in llama.llama_print_system_info()


def _would_use_amx(header: GGUFHeader) -> bool:
    """Return whether a model has weights for AMX kernels. The first of several files
    may have no matrix.
    """
    split = header.metadata.get("split.count", 1)
    return bool(header.tensor_types & _AMX_TYPES) or (
        isinstance(split, int) and split > 1
    )


@cache
def _outcome(llama: Any) -> _Outcome:
    """Return the remembered outcome for this build and processor, or run a trial."""
    memory = _memory(llama)
    if (known := _remembered(memory)) is not None:
        return known
    try:
        wrong = _run(llama, "all")
        outcome = _Outcome("all")
        if wrong:
            outcome = _Outcome("none" if _run(llama, "plain") else "plain", wrong)
    except _NotTried as error:
        # llama.cpp's plain kernels are the safe ones; another process may be able to
        # try.
        return _Outcome(
            "plain", f"whether they work here could not be tried: {error}", tried=False
        )
    _remember(memory, outcome)
    return outcome


def _run(llama: Any, kernels: str) -> str:
    """Try these kernels in a child process, and return what went wrong, or an empty
    text.

    Raises:
        _NotTried: the child could not be started, did not end in time, or failed for
            another reason.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="reasc-trial-") as folder:
            return _tried(llama, embedded_model_path(), folder, kernels)
    except OSError as error:
        raise _NotTried(f"a child process cannot be run ({error})") from None


def _tried(llama: Any, *arguments: str | Path) -> str:
    if not sys.executable or getattr(sys, "frozen", False):
        raise _NotTried("there is no Python to run a trial with")
    # A graphics card has nothing to do with it, and a debugger need not look at what
    # dies.
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "-1", "GGML_NO_BACKTRACE": "1"}
    try:
        done = subprocess.run(
            [
                sys.executable,
                "-P",
                _PROGRAM,
                Path(llama.__file__).parents[1],
                *arguments,
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise _NotTried(f"a child process cannot be run ({error})") from None
    return _judged(done)


def _judged(done: subprocess.CompletedProcess[bytes]) -> str:
    """Return what went wrong in a child process that has ended, or an empty text."""
    said = done.stdout.decode("utf-8", "replace").split()[-1:]
    if done.returncode == 0 and said in (["works"], ["differs"]):
        return (
            ""
            if said == ["works"]
            else "a trial in a child process computed something else with them"
        )
    if done.returncode == 0 and said == ["memory"]:
        return _TOO_MUCH
    died, last = (
        _signal(done.returncode),
        done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:],
    )
    if died in _DEADLY and last and "bad_alloc" in last[0]:
        return _TOO_MUCH
    if died in _DEADLY:
        # an assertion begins with the path of its source file
        why = last[0].strip().rpartition("/")[2] if last else ""
        return f"a trial in a child process died of {died}" + (
            f" ({why})" if why else ""
        )
    raise _NotTried(
        f"the child process ended with {died or done.returncode}: "
        f"{last[0] if last else 'no message'}"
    )


def _signal(returncode: int) -> str:
    """Return the signal (on Windows, the exception code) that a process died of, if it
    did.
    """
    if returncode in (0xC000001D, 0xC000001D - 2**32):
        return "SIGILL"
    try:
        return signal.Signals(-returncode).name if returncode < 0 else ""
    except ValueError:
        return ""


def _memory(llama: Any) -> Path | None:
    """Return the file of the outcome for this build, processor and kernel, or None
    without a home directory.
    """
    processor = this_processor()
    known_by = [processor.name, *sorted(processor.flags), platform.release()]
    return _cached("llama-cpp-kernels", llama, "*ggml-cpu*", *known_by)


def _cached(kind: str, llama: Any, built: str, *known_by: str) -> Path | None:
    builds = [
        file_sha256(path)
        for path in sorted(libraries(llama).glob(built))
        if not path.is_symlink()
    ]
    key = hashlib.sha256(
        "\n".join(
            [file_sha256(_PROGRAM), llama.__version__, *builds, *known_by]
        ).encode()
    ).hexdigest()
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    return caches / "langchain-reasc" / f"{kind}-{key[:16]}.json"


def _remembered(memory: Path | None) -> _Outcome | None:
    if memory is None:
        return None
    try:
        kept = json.loads(memory.read_text(encoding="utf-8"))
        return _Outcome(**kept) if kept["kernels"] in ("all", "plain", "none") else None
    except (OSError, ValueError, TypeError, KeyError):
        return None  # not there, or not whole: try again


def _remember(memory: Path | None, outcome: _Outcome) -> None:
    try:
        if memory is None:
            raise OSError("there is no home directory")
        memory.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(memory, json.dumps(asdict(outcome)))
    except OSError as error:
        _logger.info(
            (
                "a trial of llama.cpp cannot be remembered, so each process makes its "
                "own: %s"
            ),
            error,
        )
