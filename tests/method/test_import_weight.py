"""`import langchain_reasc` stays light: the heavy libraries load when first needed."""

import subprocess
import sys

import pytest

HEAVY = ("sklearn", "scipy.stats", "matplotlib", "llama_cpp", "torch")


@pytest.mark.parametrize("module", ["langchain_reasc", "langchain_reasc.calibration"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == []
