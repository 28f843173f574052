"""A picture of the documentation: the packages, and what each imports.

``python tests/documentation/pictures.py`` draws it anew: run it after a package imports another for the first time.
"""

import ast
from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ROOT / "docs" / "rooms.svg"

STYLE: Final = """<style>
  text { font: 14px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
  .name { font-weight: 600 }
  .small { font-size: 12px; fill: #57606a }
  .step { font-size: 12px; font-weight: 700; fill: #fff; text-anchor: middle }
</style>"""


LAB, BACKEND, LLAMA_CPP, OPENAI = (f"langchain_reasc_{name}" for name in ("lab", "backend", "llama_cpp", "openai"))
BOXES: Final = {
    LAB: (1, 0, "pools, replay, reports"),
    "cli": (1, 1, "the command reasc"),
    "agents": (0, 2, "chat model, middleware"),
    "runnable": (0, 3, "the loop, calibrate"),
    "sampling": (0, 4, "draws, cuts off"),
    LLAMA_CPP: (2, 4, "a GGUF in this process"),
    OPENAI: (3, 4, "servers"),
    "models": (0, 5, "chat models, logprobs"),
    "data": (1, 5, "questions in files"),
    "calibration": (1, 4, "gate and weights, files"),
    "answers": (1, 6, "what a response votes for"),
    BACKEND: (3, 6, "what both backends share"),
    "method": (1, 7, "when to stop: pure functions"),
}
"""Each package -> its column, its row and what it holds."""
STEPS: Final = {"runnable": "1", "sampling": "2", "models": "3", "answers": "4", "method": "5"}
"""The way of a sample through the packages."""


@cache
def imported() -> dict[str, set[str]]:
    """Return the packages that each package imports; one of a distribution beside the core counts as a whole."""
    found: dict[str, set[str]] = {name: set() for name in BOXES}
    folders = {name: ROOT / "langchain_reasc" / name for name in BOXES} | {LAB: ROOT / "lab" / LAB}
    folders |= {name: ROOT / "backends" / name for name in (BACKEND, LLAMA_CPP, OPENAI)}
    for package, folder in folders.items():
        for path in folder.rglob("*.py"):
            for module in _modules(ast.parse(path.read_text(encoding="utf-8"))):
                top, _, rest = module.partition(".")
                name = rest.split(".")[0] if top == "langchain_reasc" else top
                if name in BOXES and name != package:
                    found[package].add(name)
    return found


def arrows() -> set[tuple[str, str]]:
    """Return the imports between packages, without those that follow from others."""
    direct = imported()

    def reached(package: str) -> set[str]:
        return direct[package].union(*(reached(one) for one in direct[package]))

    return {
        (package, other)
        for package, others in direct.items()
        for other in others
        if not any(other in reached(between) for between in others - {other})
    }


def packages() -> str:
    """Draw the packages, an arrow from each to those that it imports, and the way of a sample."""
    lines = [
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#57606a"/></marker></defs>'
    ]
    for source, target in sorted(arrows()):
        (x, y, _), (to, down, _) = BOXES[source], BOXES[target]
        aside = 26 * ((to > x) - (to < x))
        lines.append(
            f'<path data-from="{source}" data-to="{target}" stroke="#57606a" fill="none" marker-end="url(#head)" '
            f'd="M{110 + 204 * x + aside} {58 + 64 * y}L{110 + 204 * to - aside} {15 + 64 * down}"/>'
        )
    for name, (x, y, holds) in BOXES.items():
        left, top, step = 16 + 204 * x, 16 + 64 * y, STEPS.get(name)
        fill = "#eaf2fd" if step else "#f6f8fa"
        lines += [
            f'<rect x="{left}" y="{top}" width="188" height="42" rx="6" fill="{fill}" stroke="#8c959f"/>',
            _text(left + 10, top + 18, name.removeprefix("langchain_reasc_"), "name"),
            _text(left + 10, top + 34, holds, "small"),
        ]
        if step:
            circle = f'<circle cx="{left + 176}" cy="{top + 12}" r="9" fill="#c64600"/>'
            lines += [circle, _text(left + 176, top + 16, step, "step")]
    way = "1 to 5: a sample is launched, drawn, read, votes, and is decided on; then the loop goes on or stops."
    lines += [
        _text(18, 532, "An arrow: imports. Those that follow from others are left out.", "small"),
        _text(18, 550, way, "small"),
    ]
    return _svg(840, 566, "The packages, and what each imports", lines)


def _svg(width: int, height: int, title: str, lines: list[str]) -> str:
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    frame = f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8" fill="#fff" stroke="#d0d7de"/>'
    opened = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n<title>{title}</title>'
    return "\n".join([opened, STYLE, frame, *lines, "</svg>", ""])


def _text(x: int, y: int, text: str, kind: str = "") -> str:
    marked = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y}"{marked}>{escape(text)}</text>'


def _modules(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


if __name__ == "__main__":
    PACKAGES.write_text(packages(), encoding="utf-8")
