"""Runs the notebooks of the documentation: ``python tests/documentation/notebooks.py`` stores what they print now."""

import os
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT: Final = Path(__file__).parents[2]
NOTEBOOKS: Final = sorted((ROOT / "docs").glob("*.ipynb"))


def run(path: Path) -> NotebookNode:
    """Run a notebook in an empty folder, with the commands of this environment."""
    notebook = nbformat.read(path, as_version=4)
    path_of_commands = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path_of_commands, "COLUMNS": "80"}
    with TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=600, coalesce_streams=True, record_timing=False)
        client.execute(cwd=folder, env=environment)
    return notebook


def printed(notebook: NotebookNode) -> list[str]:
    """What each cell prints: numbers and repeated lines are left out, and of cells tagged "varies" everything."""
    texts = list[str]()
    for cell in notebook.cells:
        text = "".join(output.get("text", output.output_type) for output in cell.get("outputs", ()))
        text = re.sub(r"(^.*\n)\1+", r"\1", re.sub(r"\d[\d.,]*", "0", text), flags=re.MULTILINE)
        texts.append("varies" if text and "varies" in cell.metadata.get("tags", ()) else text)
    return texts


if __name__ == "__main__":
    for path in NOTEBOOKS:
        nbformat.write(run(path), path)
