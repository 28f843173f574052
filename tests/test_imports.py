"""Every module can be imported, whatever versions of its dependencies are installed."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.full  # a process imports all

ALL = """
import importlib, pkgutil, sys
for package in sys.argv[1:]:
    found = importlib.import_module(package)
    names = [module.name for module in pkgutil.walk_packages(found.__path__, f"{package}.")]
    for name in names:
        importlib.import_module(name)
    print(len(names))
"""


def test_all_modules_of_all_packages() -> None:
    packages = [f"langchain_reasc{name}" for name in ("", "_lab", "_backend", "_llama_cpp", "_openai")]
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", ALL, *packages], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert sorted(map(int, done.stdout.split()))[1] > 10
