"""Figures as SVG for inclusion in a page."""

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any, Final

from langchain_reasc.exceptions import missing_extra
from langchain_reasc_lab.report.study import Study
from langchain_reasc_lab.report.tables import Figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawn

_INK: Final = "#010203"  # replaced by the page's text colour after matplotlib has drawn
_INKED: Final = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
_ROOT = re.compile(r"<svg\b[^>]*>")
_VIEW = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')
_METADATA = re.compile(r"<metadata>.*?</metadata>|<style\b.*?</style>", re.DOTALL)
_IDS = re.compile(r'(\bid="|url\(#|\bhref="#)')
_FONT = re.compile(r"(font: [^'\";]*?)\s*'[^;\"]*?sans-serif")
_PIXELS: Final = 4 / 3  # a point on a screen


def for_each_pool(studies: Sequence[Study], make: Callable[[int, Study], Figure]) -> list[Figure]:
    """Return a figure for each pool, made from the pool's index and study. Several figures have names as titles."""
    made = [make(at, study) for at, study in enumerate(studies)]
    return made if len(made) == 1 else [replace(one, title=each.name) for one, each in zip(made, studies, strict=True)]


def svg(draw: "Callable[[], Drawn]", name: str, title: str) -> str:
    """Return a drawing as an ``<svg>`` element for a page.

    Args:
        draw: makes the figure. It is called with matplotlib's settings for a page.
        name: the prefix of the ids, because a page has several pictures.
        title: the title for readers who do not see the picture.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise missing_extra("lab", "matplotlib") from None
    settings: dict[Any, Any] = {
        **dict.fromkeys(_INKED, _INK),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib, so that all machines lay out alike
        "svg.fonttype": "none",
        "svg.hashsalt": name,
    }
    file = io.StringIO()
    with matplotlib.rc_context(settings):
        draw().savefig(file, format="svg", bbox_inches="tight", metadata={"Date": None}, transparent=True)
    text = file.getvalue()
    body = _METADATA.sub("", text[text.index("<svg") :]).replace("xlink:href", "href").replace(_INK, "currentColor")
    body = _FONT.sub(r"\1 sans-serif", _IDS.sub(rf"\1{name}-", body))
    view = _VIEW.search(body)
    assert view is not None  # matplotlib writes one
    width, height = map(float, view.groups())
    root = (
        f'<svg viewBox="0 0 {width:g} {height:g}" width="{width * _PIXELS:.0f}" height="{height * _PIXELS:.0f}" '
        f'role="img" aria-label="{escape(title)}" stroke-linejoin="round" stroke-linecap="butt">'
    )
    return re.sub(r">\s+<", ">\n<", _ROOT.sub(lambda _: root, body, count=1)).strip()
