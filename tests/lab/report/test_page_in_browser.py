"""The report's page in a real browser: Chromium, or Chrome, driven by selenium."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import chromium, in_a_browser
from langchain_reasc_lab.report import Made, chosen_entries, make_report, report_page

from lab.report.studies import pool, report, weighed

pytestmark = in_a_browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("browser")) as driver:
        yield driver


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with a table, drawings, a coloured text, and parts that could not be made."""
    folder = tmp_path_factory.mktemp("page")
    studies = [weighed(pool(folder, name), name) for name in ("a", "b")]
    pytest.importorskip("matplotlib")
    drawn: list[Made] = list(make_report(studies, chosen_entries(["tradeoff", "histogram", "tokens"])).parts)
    page = folder / "report.html"
    page.write_text(report_page(report(studies, more=drawn)), encoding="utf-8")
    return page


@pytest.fixture
def page(browser: Any, path: Path) -> Iterator[Any]:
    browser.get(path.as_uri())
    yield browser
    faults = browser.get_log("browser")
    assert not faults, "the page raised errors, or asked for what is not there"


def column(page: Any, number: int) -> list[str]:
    return [one.text for one in page.find_elements("css selector", f"#part-main tbody tr > :nth-child({number})")]


def heading(page: Any, number: int) -> Any:
    return page.find_element("css selector", f"#part-main thead th:nth-child({number})")


def test_a_table_is_sorted_by_click_by_value(page: Any) -> None:
    recorded = column(page, 4)
    tokens = heading(page, 4)
    orders = []
    for _ in range(3):
        tokens.find_element("tag name", "button").click()
        orders.append((tokens.get_attribute("aria-sort"), column(page, 4)))
    assert orders == [
        ("ascending", ["10", "67", "488", "1,684", "–"]),  # where less is better, the least first
        ("descending", ["1,684", "488", "67", "10", "–"]),
        ("none", recorded),
    ]
    heading(page, 3).find_element("tag name", "button").click()
    assert [text.split()[0] for text in column(page, 3)] == ["72.5", "72.5", "59.4", "9.0", "–"]
    assert column(page, 2)[0] == "ReASC", "72.54 before 72.46"
