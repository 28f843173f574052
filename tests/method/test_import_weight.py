"""`import langchain_reasc` stays light: the heavy libraries load when first needed."""

import subprocess
import sys

HEAVY = ("sklearn", "scipy.stats", "matplotlib", "llama_cpp", "torch")


def test_importing_loads_nothing_heavy() -> None:
    code = (
        f"import sys, langchain_reasc, langchain_reasc.calibration; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == []
