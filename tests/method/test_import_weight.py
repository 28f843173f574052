"""`import langchain_reasc` stays light: the heavy libraries load when first needed."""

import subprocess
import sys

import pytest

HEAVY = ("sklearn", "scipy.stats", "matplotlib", "llama_cpp", "torch")


@pytest.mark.parametrize("names", ["ReASCRunnable", "calibration, calibrate, load_calibration"])
def test_importing_loads_nothing_heavy(names: str) -> None:
    code = f"import sys; from langchain_reasc import {names}; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == []


def test_the_package_alone_loads_none_of_its_parts() -> None:
    code = "import sys, langchain_reasc; print(*(name for name in sys.modules if name.startswith('langchain_reasc.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["langchain_reasc._version"]
