"""The site as mkdocs builds it, once for all tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .check_snippets import ROOT


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the built site."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install --group docs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return folder
