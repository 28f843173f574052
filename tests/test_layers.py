"""The packages of each distribution have one order: what comes earlier imports nothing of what comes later."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CORE = "method answers data models calibration sampling runnable agents cli"
LAB = "data pools replay escalation simulation report cli"
LLAMA_CPP = "native grammar sampling engine tools prompts"
ORDERS = {
    "langchain_reasc": CORE.split(),
    "lab/langchain_reasc_lab": LAB.split(),
    "backends/langchain_reasc_llama_cpp": LLAMA_CPP.split(),
}
FIRST = {
    *("exceptions", "_lazy", "_version", "complaints", "concurrency", "database", "files"),
    *("langchain_internals", "rules", "threads"),
}
"""Modules beside the packages that any of them may import; the others stand above all packages."""


@cache
def imports_of(path: Path) -> list[str]:
    """The modules that a file imports, by their full names, "from package import module" too."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom | ast.Import):
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            found += [f"{module}{alias.name}" for alias in node.names]
    return found


def imports(folder: Path) -> Iterator[tuple[Path, str]]:
    return ((path, name) for path in folder.rglob("*.py") for name in imports_of(path))


@pytest.mark.parametrize("distribution", ORDERS)
def test_packages_import_only_earlier_ones(distribution: str) -> None:
    order, top = ORDERS[distribution], Path(distribution).name
    wrong, seen = [], set()
    for place, package in enumerate(order):
        for path, name in imports(ROOT / distribution / package):
            parts = name.split(".")
            if parts[0] != top or len(parts) < 2 or parts[1] == package:
                continue
            seen.add(parts[1])
            if parts[1] not in (*order[:place], *FIRST):
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong, "\n".join(wrong)
    assert len(seen & set(order)) >= 4


def test_every_package_has_its_place() -> None:
    for distribution, order in ORDERS.items():
        found = {path.parent.name for path in (ROOT / distribution).glob("*/__init__.py")}
        assert found == set(order)


def test_the_server_imports_the_core_and_one_backend_and_nobody_imports_it() -> None:
    others = {"langchain_reasc_lab", "langchain_reasc_llama_cpp"}
    found = [name for _, name in imports(ROOT / "server")]
    assert not [name for name in found if name.split(".")[0] in others]
    assert any(name.startswith("langchain_reasc_openai") for name in found)
    around = [one for folder in ("langchain_reasc", "backends", "lab") for one in imports(ROOT / folder)]
    assert not [path for path, name in around if name.startswith("langchain_reasc_server")]


def test_only_the_command_of_the_server_imports_the_command_line() -> None:
    importing = {path.name for path, name in imports(ROOT / "server") if name.startswith("langchain_reasc.cli")}
    assert importing == {"command.py", "serve_options.py"}


def test_the_core_imports_neither_the_laboratory_nor_a_backend() -> None:
    """But for the commands, which name the backends that come along."""
    others = {"langchain_reasc_lab", "langchain_reasc_backend", "langchain_reasc_llama_cpp", "langchain_reasc_openai"}
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path, name in imports(ROOT / "langchain_reasc")
        if name.split(".")[0] in others and not (path.parent.name == "cli" and "_lab" not in name)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_core_knows_no_recorded_pools() -> None:
    found = [(path, name) for path, name in imports(ROOT / "langchain_reasc") if name.endswith("PoolError")]
    assert not found and not list((ROOT / "langchain_reasc").rglob("pool*"))
