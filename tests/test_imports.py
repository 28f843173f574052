"""Every module can be imported, whatever versions of its dependencies are installed."""

import subprocess
import sys

import pytest

ALL = """
import importlib, pkgutil, sys
found = importlib.import_module(sys.argv[1])
names = [module.name for module in pkgutil.walk_packages(found.__path__, f"{found.__name__}.")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""


@pytest.mark.parametrize("package", ["langchain_reasc", "langchain_reasc_llama_cpp", "langchain_reasc_openai"])
def test_all_modules_of_a_package(package: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", ALL, package], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10
