"""Disks that are full, or of their own."""

import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))


def mounted(*arguments: object) -> bool:
    if shutil.which("mount") is None:
        return False
    command = ["mount", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
