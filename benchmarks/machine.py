"""Names the machine and the builds that were measured."""

import importlib.metadata
import os
import platform
import shutil
import subprocess
from pathlib import Path

from langchain_reasc_llama_cpp.native.bindings import library

__all__ = ["available_cores", "default_threads", "describe_machine", "graphics_cards"]


def available_cores() -> int:
    """Logical cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_threads() -> int:
    """All of a few cores; of more, half, as the rest are mostly hyper-threads."""
    cores = available_cores()
    return cores if cores <= 4 else cores // 2


def graphics_cards() -> list[str]:
    """Names of NVIDIA cards and their drivers, as nvidia-smi tells them."""
    if shutil.which("nvidia-smi") is None:
        return []
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, check=False, timeout=30)
    return answer.stdout.strip().splitlines() if answer.returncode == 0 else []


def describe_machine(*, threads: int, shipped_threads: int, n_gpu_layers: int, flash_attn: bool | None) -> str:
    """Processor, cores, threads, load, operating system, versions and llama.cpp's build, one line each."""
    cards = graphics_cards()
    flash = {None: "left to llama.cpp", True: "on", False: "off"}[flash_attn]
    llama = library()
    offload = bool(llama.llama_supports_gpu_offload())
    load = f", load {os.getloadavg()[0]:.2f} before the run" if hasattr(os, "getloadavg") else ""
    lines = [
        f"processor: {_processor()}; {available_cores()} cores available{load}",
        f"threads: {threads} ({shipped_threads} for the shipped model); flash attention: {flash}; layers on a GPU: "
        f"{n_gpu_layers} (llama-cpp-python built with GPU support: {offload})",
        f"cards: {'; '.join(cards) if cards else 'none found by nvidia-smi'}",
        f"system: {_system()}; Python {platform.python_version()}",
        "versions: "
        + ", ".join(_version(name) for name in ("llama-cpp-python", "xllamacpp", "numpy", "langchain-core")),
        f"llama-cpp-python's llama.cpp: {llama.llama_print_system_info().decode().rstrip(' |')}",
    ]
    return "\n".join(lines)


def _processor() -> str:
    about = Path("/proc/cpuinfo")
    lines = about.read_text().split("\n\n")[0].splitlines() if about.exists() else []
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if "model name" not in fields:
        return platform.processor() or platform.machine()
    family = ", ".join(f"{key} {fields[key]}" for key in ("cpu family", "model", "stepping") if key in fields)
    return f"{fields['model name']} ({family})"


def _system() -> str:
    try:
        name = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        name = platform.system()
    return f"{name}, {platform.system()} {platform.release()}, {platform.machine()}"


def _version(package: str) -> str:
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{package} not installed"
