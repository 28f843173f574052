"""Checks what the documentation shows with mypy and pyright, as they see the installed package without our settings.

``python tests/documentation/check_snippets.py``: every block of Python in the documentation, and ``arguments.py``. Each
block is a file of its own, so that it must stand alone, with the line numbers that it has in the documentation.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).parents[2]
ARGUMENTS: Final = Path(__file__).with_name("arguments.py")
CACHE: Final = ROOT / ".mypy_cache" / "snippets"
CHECKERS: Final = {
    "mypy": ["mypy", "--config-file=", "--warn-unused-ignores", f"--cache-dir={CACHE}", "."],
    "pyright": ["pyright", f"--pythonpath={sys.executable}", "."],
}
QUIET: Final = {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}


def documents() -> list[Path]:
    """The Markdown files that we write."""
    patterns = ("*.md", "backends/**/*.md", "docs/**/*.md", "examples/**/*.md")
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern))


def snippets(text: str) -> Iterator[tuple[int, str]]:
    """Line and code of each block of Python in a Markdown text."""
    for block in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield text.count("\n", 0, block.start(1)) + 1, block[1]


def write(folder: Path) -> dict[str, str]:
    """Write the files to be checked; returns their names -> what to call them in messages."""
    named = {ARGUMENTS.name: str(ARGUMENTS.relative_to(ROOT))}
    folder.joinpath(ARGUMENTS.name).write_text(ARGUMENTS.read_text(encoding="utf-8"), encoding="utf-8")
    for document in documents():
        shown = document.relative_to(ROOT)
        for line, code in snippets(document.read_text(encoding="utf-8")):
            name = f"{re.sub(r'[^a-z]+', '_', str(shown.with_suffix('')).lower())}_{line}.py"
            folder.joinpath(name).write_text("\n" * (line - 1) + code, encoding="utf-8")
            named[name] = str(shown)
    return named


def main() -> int:
    """Run both checkers side by side."""
    with TemporaryDirectory() as place:
        folder = Path(place).resolve()
        named = write(folder)
        running = {
            name: subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=folder,
                env={**os.environ, **QUIET},
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            for name, command in CHECKERS.items()
        }
        said = {name: process.communicate()[0] for name, process in running.items()}
        failed = [name for name, process in running.items() if process.returncode]
    for name in failed:
        text = said[name].replace(f"{folder}{os.sep}", "")
        for file, shown in named.items():
            text = text.replace(f"{file}:", f"{shown}:")
        print(f"{name}:\n{text}", file=sys.stderr)
    if not failed:
        print(f"{len(named) - 1} snippets of the documentation pass mypy and pyright")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
