"""Names the machine and the builds that were measured."""

import importlib.metadata
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from langchain_reasc_llama_cpp.native.bindings import library
from langchain_reasc_llama_cpp.native.safe_kernels import this_processor

if TYPE_CHECKING:
    from benchmarks.settings import Settings

__all__ = ["default_threads", "describe_machine"]


def default_threads() -> int:
    """All of a few cores; of more, half, as the rest are mostly hyper-threads."""
    cores = _cores()
    return cores if cores <= 4 else cores // 2


def describe_machine(settings: "Settings") -> str:
    """Processor, cores, threads, load, operating system, versions and llama.cpp's build, one line each."""
    llama = library()
    load = f", load {os.getloadavg()[0]:.2f} before the run" if hasattr(os, "getloadavg") else ""
    flash = {None: "left to llama.cpp", True: "on", False: "off"}[settings.flash_attn]
    versions = map(_version, ("llama-cpp-python", "xllamacpp", "numpy", "langchain-core"))
    return "\n".join(
        [
            f"processor: {_processor()}; {_cores()} cores available{load}",
            f"threads: {settings.threads} ({settings.shipped_threads} for the shipped model); flash attention: {flash}",
            f"layers on a GPU: {settings.n_gpu_layers} (llama-cpp-python built with GPU support: "
            f"{bool(llama.llama_supports_gpu_offload())})",
            f"cards: {'; '.join(_cards()) or 'none found by nvidia-smi'}",
            f"system: {platform.platform()}; Python {platform.python_version()}",
            f"versions: {', '.join(versions)}",
            f"llama-cpp-python's llama.cpp: {llama.llama_print_system_info().decode().rstrip(' |')}",
        ]
    )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    about = Path("/proc/cpuinfo")
    lines = about.read_text().split("\n\n")[0].splitlines() if about.exists() else []
    kept = [
        " ".join(line.replace(":", "").split()) for line in lines if line.startswith(("cpu family", "model\t", "step"))
    ]
    return f"{this_processor().name} ({', '.join(kept)})"


def _cards() -> list[str]:
    """Names of NVIDIA cards and their drivers, as nvidia-smi tells them."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, check=False, timeout=30)
    return answer.stdout.strip().splitlines() if answer.returncode == 0 else []


def _version(package: str) -> str:
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{package} not installed"
