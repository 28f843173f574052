"""Write a report as one self-contained HTML page."""

import base64
import hashlib
import re
from importlib.resources import files
from typing import Any, Final

from langchain_reasc.exceptions import missing_extra
from langchain_reasc_lab.report.output import (
    Explained,
    explained,
    headline,
    missing,
    pool_facts,
    printable,
    setting_lines,
)
from langchain_reasc_lab.report.report import Made, Report, command_for
from langchain_reasc_lab.report.tables import (
    MARKED,
    POOLS,
    shown,
)

_WIDTH = re.compile(r'<svg [^>]*?\bwidth="(\d+)"')
_HALF: Final = 680
"""Pixels that a figure may be wide to stand beside another."""
_FIRST: Final = ("short", "tradeoff")
"""The entries beside the verdict, on the first screen."""
_FOLDED: Final = "main"
"""The entry below them, which is folded."""
_MARKS: Final = MARKED.format(best="Bold", second="underlined")


def check_page_extra() -> None:
    """Whether a page can be made, to be asked before anything is computed.

    Raises:
        MissingExtraError: jinja2 is not installed.
    """
    try:
        import jinja2  # noqa: F401
    except ModuleNotFoundError:
        raise missing_extra("lab", "jinja2") from None


def report_page(report: Report) -> str:
    """The page, the same for the same report.

    Texts are escaped, and the page's own policy lets a browser load nothing and run no script but its own.

    Raises:
        MissingExtraError: jinja2 is not installed.
    """
    check_page_extra()
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    text = environment.from_string(_read("report.html.j2")).render(**_context(report))
    return printable(text)


def _context(report: Report) -> dict[str, Any]:
    from markupsafe import Markup

    script, known = _read("report.js"), explained(report)
    parts = [_section(report, made, known.get(made.entry.name)) for made in report.parts if not made.is_empty]
    first = [part for part in parts if part["made"].entry.name in _FIRST] if report.verdicts else []
    folded = next((part for part in parts if first and part["made"].entry.name == _FOLDED), None)
    return {
        "headline": headline(report),
        "verdicts": list(zip([study.name for study in report.studies], report.verdicts, strict=False)),
        "first": first,
        "folded": folded,
        "rest": [part for part in parts if part not in (*first, folded)],
        "missing": [([part.entry for part in gone], why) for why, gone in missing(report).items()],
        "pools": [(study.name, pool_facts(study), study.pool.notes) for study in report.studies],
        "settings": list(setting_lines(report)),
        "marks": _MARKS,
        "css": Markup(_read("report.css")),
        "script": Markup(script),
        "hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "markup": Markup,
    }


def _read(name: str) -> str:
    return files("langchain_reasc_lab.report").joinpath(name).read_text(encoding="utf-8")


def _section(report: Report, made: Made, known: Explained | None) -> dict[str, Any]:
    """The template's data of a part: the rows of its table, the columns with texts, and the column that names a row."""
    name, table = f"part-{made.entry.name}", made.table
    section: dict[str, Any] = {"made": made, "id": name, "command": command_for(report, made.entry.name)}
    widths = [_WIDTH.match(figure.html) for figure in made.figures]
    section["figures"] = [
        (f"{name}-{at}", figure, width is not None and int(width[1]) > _HALF)
        for at, (figure, width) in enumerate(zip(made.figures, widths, strict=True))
    ]
    section |= {"table": table, "known": known}
    if table is not None:
        texts = [table.is_text(at) for at in range(len(table.columns))]
        named = int(len(texts) > 1 and table.columns[0].name in POOLS and texts[1])
        section |= {"rows": shown(table), "texts": texts, "named": named}
    return section
