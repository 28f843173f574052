"""The figures on small pools: what they show is in their words, and the drawing stands in any page."""

import html
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain_reasc_lab.pools.json_lines import signals_path
from langchain_reasc_lab.report import (
    Figure,
    Study,
    chosen_entries,
    contents,
    make_report,
    report_data,
    report_page,
)
from langchain_reasc_lab.report.figures import tradeoff

from lab.pools.synthetic import append_signals, question, response, write_lines
from lab.report.studies import SETTINGS, weighed
from lab.report.test_rendering import parsed
from langchain_reasc.exceptions import ReASCError
from langchain_reasc.method.confidence import Measure

pytest.importorskip("matplotlib")
DRAWN = ("histogram", "tradeoff", "risk", "posteriors", "acceptance", "tokens")


def figures(name: str, *studies: Study) -> list[Figure]:
    made: list[Figure] = contents()[name].make(studies)
    return made


@pytest.mark.slow  # draws every figure
def test_all_figures_stand_in_one_page(two: tuple[Study, ...]) -> None:
    made = make_report(two, chosen_entries(DRAWN))
    assert not [part.problems for part in made.parts if part.problems]
    page = report_page(made)
    parsed(page)  # ids are unique, although matplotlib calls all figures figure_1
    assert "#010203" not in page and "currentColor" in page
    assert tradeoff(two[:1])[0].html == figures("tradeoff", two[0])[0].html, "the same numbers, the same picture"
    assert all(one.text for part in made.parts for one in part.figures)
    json.dumps(report_data(made), allow_nan=False)


def test_words_say_the_numbers(two: tuple[Study, ...]) -> None:
    [acceptance] = figures("acceptance", *two)
    row = next(row for row in two[0].rows if row.method == "ReASC (offline)")
    assert f"a: {100 * row.gated:.1f} %" in acceptance.text
    asc = next(row for row in two[0].rows if row.method == "ASC")
    assert f"ASC: {100 * asc.accuracy.value:.1f} %" in figures("tradeoff", two[0])[0].text
    right = sum(bool(one.responses[0].correct) for one in two[0].pool.questions)
    assert f"(n = {right}), wrong" in figures("histogram", two[0])[0].text
    assert re.search(
        r"ASC stops after \d+ responses? \(\w+\): P = 0\.750 after 1", figures("posteriors", two[0])[0].text
    )


def pool_with_tokens(folder: Path, texts: Sequence[str], **broken: Any) -> Path:
    """A question whose responses' tokens are their characters, or what ``broken`` says."""
    path = folder / "t.jsonl"
    path.unlink(missing_ok=True)
    signals_path(path).unlink(missing_ok=True)
    lines, responses = [], []
    for at, text in enumerate(texts):
        lengths = {"token_lengths": [1] * len(text), **broken}
        responses.append(response("7" if at % 2 else "8", len(text), text=text, **lengths))
    for name in ("q0", "q1"):
        lines.append(question(name, *responses))
        append_signals(signals_path(path), name, [{"token_logprob": [-0.1 * n for n in range(len(t))]} for t in texts])
    return write_lines(path, *lines)


def test_tokens_are_coloured_where_they_stand_and_escaped(tmp_path: Path) -> None:
    texts = ["<b>so</b> & 8", "1\n<i>7", "half an answer", "7 after all"]
    one = weighed(pool_with_tokens(tmp_path, texts), measure=Measure("token_logprob", "mean"))
    [made] = figures("tokens", one)
    assert "<b>" not in made.html and "&lt;" in made.html
    shown = re.sub(r"<[^>]+>", "", made.html)
    for text in texts:
        assert text in html.unescape(shown), "nothing is lost, line breaks neither"
    assert "underline dotted" in made.html and "right (answer 7)" in shown and "wrong (answer 8)" in shown
    assert made.html.index("right (answer 7)") < made.html.index("wrong (answer 8)")


@pytest.mark.parametrize("lengths", [None, [1, 1], [99] * 4])
def test_without_the_places_of_tokens_there_are_lines_and_no_guess(tmp_path: Path, lengths: object) -> None:
    path = pool_with_tokens(tmp_path, ["abcd", "efgh"], token_lengths=lengths)
    [made] = figures("tokens", weighed(path, measure=Measure("token_logprob", "mean")))
    assert made.html.startswith("<svg") and "does not say which characters" in " ".join(made.notes)


@pytest.mark.parametrize("name", DRAWN)
def test_pools_that_cannot_tell_say_why(tmp_path: Path, name: str) -> None:
    lines = [question(f"q{n}", response("7", score=1.0)) for n in range(9)]
    unscored = write_lines(tmp_path / "bare.sqlite", question("q", response("7"), response("8")))
    alike, settings = write_lines(tmp_path / "right.sqlite", *lines), replace(SETTINGS, calibration_size=4)
    bare = weighed(unscored, "bare", measure=None)
    right = weighed(alike, "right", measure="recorded", settings=settings)
    for one in (bare, right):
        if name == "tradeoff" or (one.name, name) == ("right", "acceptance"):
            assert figures(name, one)[0].text
        else:
            with pytest.raises(ReASCError, match=r"\w+ .{20}"):
                figures(name, one)
