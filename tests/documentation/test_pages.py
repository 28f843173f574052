"""What the documentation says of files, of figures and of the picture is so."""

import pydoc
import re
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import pytest
from langchain_reasc_lab.report import CONTENTS

from langchain_reasc.exceptions import ReASCError
from langchain_reasc.method import (
    ASC,
    Agreement,
    StoppingRule,
    evidence_by_answer,
    leader,
    posterior,
    rules,
)

from . import error_table
from .check_snippets import ROOT, documents, snippets
from .pictures import BOXES, PACKAGES, arrows, packages

SVG: Final = "{http://www.w3.org/2000/svg}"


def anchors(page: Path) -> set[str]:
    """What GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", documents(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL))
    for link in (link for link in links if "://" not in link):
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not heading or heading in anchors(target), link


def test_contributing_names_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:langchain_reasc|lab|backends|benchmarks|tests)/[\w/.]*)`", text)
    assert len(named) > 15 and not [path for path in named if not (ROOT / path).exists()]


def test_the_bound_on_differences_is_what_its_lines_print(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "measured.md").read_text(encoding="utf-8")
    [(_, code)] = snippets(page)
    exec(compile(code, "measured.md", "exec"), {})
    bound = float(capsys.readouterr().out)
    assert bound == pytest.approx(1 - 0.025 ** (1 / 160))
    assert f"# {bound:.4f}" in code
    assert f"= {bound:.1%}".replace("%", " %") in page
    assert f"up to {bound:.1%}".replace("%", " %") in page


@pytest.mark.full
def test_the_picture_of_the_packages_is_the_one_drawn_now() -> None:
    """Run ``python tests/documentation/pictures.py`` where it is not."""
    assert PACKAGES.read_text(encoding="utf-8") == packages()


@pytest.mark.full
def test_the_arrows_of_the_picture_are_the_imports_between_packages() -> None:
    paths = ElementTree.parse(PACKAGES).getroot().iter(f"{SVG}path")
    shown = {(one.attrib["data-from"], one.attrib["data-to"]) for one in paths if "data-from" in one.attrib}
    assert shown == arrows() and len(shown) >= 14


def test_the_picture_has_every_package() -> None:
    found = {path.parent.name for path in (ROOT / "langchain_reasc").glob("*/__init__.py")}
    assert found == {name for name in BOXES if not name.startswith("langchain_reasc_")}


TOTALS: Final = {
    'langchain-reasc with `calibration="online"`': "Agreement (0.975)",
    "langchain-reasc without (`FiniteHorizon(0.97)`)": "Finite horizon (0.97)",
    "lead of 2": "Lead of 2",
    "lead of 3": "Lead of 3",
    "`FiniteHorizon(0.9)`": "Finite horizon (0.9)",
}
"""Row of the README's table of all recordings -> row of what ``reasc bench`` printed."""


def table_rows(page: str) -> dict[str, list[str]]:
    """First cell of each row of the page's tables -> the others."""
    rows: dict[str, list[str]] = {}
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("| "):
            name, *cells = (cell.strip() for cell in line.strip("|").split(" | "))
            rows[name] = cells
    return rows


def test_the_readme_repeats_what_was_measured() -> None:
    measured = table_rows("docs/measured.md")
    shown = {name: cells for name, cells in table_rows("README.md").items() if cells[0].endswith(" %")}
    assert len(shown) == 5
    for name, cells in shown.items():
        [row] = [row for named, row in measured.items() if named.startswith(f"{name}, ")]
        assert cells == row[:5]


def test_the_readme_repeats_what_was_printed_of_all_recordings() -> None:
    printed = (ROOT / "docs" / "measured.md").read_text(encoding="utf-8")
    shown = table_rows("README.md")
    for name, printed_as in TOTALS.items():
        rule = re.escape(printed_as)
        tokens = re.search(rf"^ {rule} +([\d.]+) \(([\d.]+)-([\d.]+)\)", printed, re.MULTILINE)
        points = re.search(rf"^ {rule} +([+-][\d.]+) \[(\S+),(\S+)\]", printed, re.MULTILINE)
        assert tokens and points
        cost, difference = shown[name]
        assert re.findall(r"[\d.]+", cost) == list(tokens.groups())
        assert re.findall(r"[−+][\d.]+", difference) == [number.replace("-", "−") for number in points.groups()]


def test_the_first_screen_says_what_all_recordings_cost() -> None:
    first_screen = (ROOT / "README.md").read_text(encoding="utf-8").partition("```")[0]
    cost, difference = table_rows("README.md")[next(iter(TOTALS))]
    for number in re.findall(r"[\d.]+", f"{cost} {difference}"):
        assert number in first_screen
    helps = re.search(
        r"Votes clearly help on (\d+) of (\d+) recordings", (ROOT / "docs" / "measured.md").read_text("utf-8")
    )
    assert helps
    helped, recordings = (int(count) for count in helps.groups())
    assert f"On {recordings} recordings" in first_screen
    assert f"On {recordings - helped} of the recordings" in first_screen


@pytest.mark.parametrize("rule", [*rules().values(), Agreement], ids=lambda rule: rule.name)
def test_the_page_on_rules_has_every_rule(rule: type[StoppingRule]) -> None:
    page = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
    assert re.search(rf"`{rule.__name__}\b|\*\*{rule.__name__}\*\*|^## {rule.__name__}\b", page, re.MULTILINE)


@pytest.mark.parametrize(("name", "calls"), [("rules.md", "decide("), ("escalation.md", "rate_bound(")])
def test_a_page_prints_what_it_shows(name: str, calls: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    [code] = [code for _, code in snippets(page) if calls in code]
    exec(compile(code, name, "exec"), {})
    assert f"```\n{capsys.readouterr().out}```" in page


def drawn() -> dict[str, list[tuple[str, float]]]:
    """Name of each row of the picture -> answer and weight of each response that it asks for."""
    rows = {}
    for group in ElementTree.parse(ROOT / "docs" / "how-it-decides.svg").getroot().iter(f"{SVG}g"):
        name = next(text.text or "" for text in group.iter(f"{SVG}text"))
        answers = [text.text or "" for text in group.iter(f"{SVG}text") if text.get("class") == "in"]
        radii = [float(circle.get("r", 0)) for circle in group.iter(f"{SVG}circle") if circle.get("fill") != "none"]
        rows[name] = [(answer, (radius / 9.5) ** 2) for answer, radius in zip(answers, radii, strict=False)]
    return rows


@pytest.mark.parametrize("name", ["Adaptive (ASC)", "ReASC, not sure yet"])
def test_the_picture_stops_where_the_evidence_is_sufficient(name: str) -> None:
    responses = drawn()[name]
    reached = [posterior(evidence_by_answer(responses[: n + 1])) >= ASC().confidence for n in range(len(responses))]
    assert reached == [False] * (len(responses) - 1) + [True]
    assert leader(evidence_by_answer(responses)) == "42"


def test_the_picture_shows_one_question_to_all_but_the_gate() -> None:
    rows = drawn()
    every = [answer for answer, _ in rows["Self-consistency (SC)"]]
    assert len(every) == 16
    for name in ("Ask once", "Adaptive (ASC)", "ReASC, not sure yet"):
        assert [answer for answer, _ in rows[name]] == every[: len(rows[name])], name
    assert len(rows["Ask once"]) == len(rows["ReASC, sure at once"]) == 1


def test_the_page_on_the_laboratory_names_every_table_and_figure() -> None:
    page = (ROOT / "docs" / "lab.md").read_text(encoding="utf-8")
    named = {name for row in page.splitlines() if row.startswith("| `") for name in re.findall(r"`(\w+)`", row)}
    assert {entry.name for entry in CONTENTS} <= named


@pytest.mark.parametrize("error", error_table.errors(), ids=lambda error: error.__name__)
def test_every_error_says_what_it_means_and_what_to_do(error: type[ReASCError]) -> None:
    meaning, advice = error_table.meaning_and_advice(error)
    assert len(meaning.split()) > 3 and len(advice.split()) > 3
    assert error.__doc__ and error_table.ADVICE in pydoc.plain(pydoc.render_doc(error))


def test_the_page_on_errors_has_the_table_made_of_their_docstrings() -> None:
    """Run ``python tests/documentation/error_table.py`` where it has not."""
    assert len(error_table.errors()) > 20
    assert error_table.table() in error_table.PAGE.read_text(encoding="utf-8")
