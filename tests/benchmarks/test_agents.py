"""What ReASC costs in an agent is counted as the documentation says."""

import re
from pathlib import Path

import pytest

pytest.importorskip("langchain.agents")

from benchmarks.agents import Provider, agents, counted, main

ROOT = Path(__file__).parents[2]


def test_the_page_says_what_is_counted() -> None:
    page = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]+ \| (\d+) \| (\d+) \| (\d+) \| [\d.]+ \| \d+ \|$", page, re.MULTILINE)
    model = Provider()
    found = [counted(model, agent) for agent in agents(model).values()]
    assert [list(map(int, row)) for row in rows] == [[samples, billed, runs] for samples, billed, _, runs, _ in found]
    assert all(billed == tokens for _, billed, tokens, _, _ in found)


def test_all_tables_are_printed_and_every_token_is_counted_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick"]) == 0
    told = capsys.readouterr().out
    assert told.count("| ReASCMiddleware") == 3 and "in responses" in told
    assert len(re.findall(r"^\| .* \| [\d.]+% \| [\d.]+ \|$", told, re.MULTILINE)) == 3


def test_the_picture_shows_the_bills_that_are_counted() -> None:
    picture = (ROOT / "docs" / "agent-traces.svg").read_text(encoding="utf-8")
    totals = dict(re.findall(r'class="name">([^<]+)</text>\n +<text [^>]+>(\d+) tokens', picture))
    model = Provider()
    plain, runnable, chat, middleware, _ = (counted(model, agent)[2] for agent in agents(model).values())
    assert list(map(int, totals.values())) == [plain, runnable, chat, middleware]
