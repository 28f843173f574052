"""`import langchain_reasc` stays light: the heavy libraries load when first needed."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.full  # a process imports it

HEAVY = {"sklearn", "scipy.stats", "matplotlib", "llama_cpp", "torch"}
PROGRAM = """
import sys, langchain_reasc
print(*(name for name in sys.modules if name.startswith("langchain_reasc.")))
from langchain_reasc import ReASCRunnable, calibration, calibrate, load_calibration
print(*sys.modules)
"""


def test_importing_loads_nothing_heavy_and_the_package_alone_none_of_its_parts() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=600)
    alone, whole = done.stdout.splitlines()
    assert set(alone.split()) <= {"langchain_reasc._lazy", "langchain_reasc._version"}
    assert not HEAVY & set(whole.split())
