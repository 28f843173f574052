"""The table in backends/README.md says what the tests show."""

from pathlib import Path
from typing import Final

import pytest

from .faults import FAULTS
from .test_faults import ASKED_AGAIN, FAILURES, NO_SCORE, NO_VOTE

README: Final = Path(__file__).parents[2] / "backends" / "README.md"
HEADING: Final = "### What servers do wrong, and what comes of it\n"


def rows() -> dict[str, list[str]]:
    """What the server does -> what comes of it, over each client."""
    section = README.read_text(encoding="utf-8").split(HEADING)[1].split("\n#")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {first.split(" (")[0]: others for first, *others in cells}


def outcome(client: str, name: str) -> str:
    if name in ASKED_AGAIN[client] or name == "429 with Retry-After":
        return "asked again"
    if name in FAILURES[client]:
        return "failed"
    return "no vote" if name in NO_VOTE else "no confidence" if name in NO_SCORE else "no harm"


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_has_its_row(name: str) -> None:
    cells = rows()[name]
    for client, cell in zip(FAILURES, cells, strict=True):
        said = cells[0] if cell == "likewise" else cell
        assert said.startswith(outcome(client, name)), client
