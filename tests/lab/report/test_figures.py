"""The figures on small pools, and their data."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain_reasc_lab.pools.json_lines import signals_path
from langchain_reasc_lab.report import CONTENTS, Study

from lab.pools.synthetic import append_signals, question, response, write_lines
from lab.report.studies import SETTINGS, made, rows_of, weighed
from langchain_reasc.exceptions import ReASCError
from langchain_reasc.method.confidence import Measure

pytest.importorskip("matplotlib")
FIGURES = [entry.name for entry in CONTENTS if entry.each_pool]


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_drawn_of_its_pool(two: tuple[Study, ...], name: str, tmp_path: Path) -> None:
    table = made(name, two[0])
    assert table.draw is not None and table.rows and not table.printed
    table.draw().savefig(tmp_path / "figure.png")


@pytest.mark.parametrize("name", ["stage1", "scale", "calibration_size"])
def test_a_table_of_several_pools_is_drawn(two: tuple[Study, ...], name: str, tmp_path: Path) -> None:
    for studies in (two, two[:1]):
        table = made(name, *studies)
        assert table.draw is not None and table.printed
        table.draw().savefig(tmp_path / "figure.png")


def test_acceptance_is_drawn_against_sizes_that_differ(two: tuple[Study, ...]) -> None:
    sized = []
    for study, size in zip(two, (3e9, 7e9), strict=True):
        pool = replace(study.pool, metadata=study.pool.metadata | {"parameters": size})
        sized.append(replace(study, pool=pool))
    for studies, label in ((sized, "parameters (billions)"), (two, "accepted (%)")):
        table = made("stage1", *studies)
        assert table.draw is not None
        [axes] = table.draw().axes
        assert axes.get_xlabel() == label


def test_data_are_those_of_the_rows_and_responses(two: tuple[Study, ...]) -> None:
    study = two[0]
    asc = next(row for row in study.rows if row.method == "ASC")
    [drawn] = [row for row in rows_of("tradeoff", study) if row["Method"] == "ASC"]
    assert (drawn["Accuracy %"], drawn["Tokens"]) == (asc.accuracy.percent, asc.tokens)
    right = sum(bool(one.responses[0].correct) for one in study.pool.questions)
    assert f"(n = {right}), wrong" in " ".join(made("histogram", study).notes)
    first = rows_of("histogram", study)[0]["Score"]
    shown = sum(row["Right"] for row in rows_of("histogram", study) if row["Score"] == first)
    assert right - 2 <= shown <= right, "from the 1st to the 99th percentile"
    posteriors = [row for row in rows_of("posteriors", study) if row["Method"] == "ASC"]
    assert (posteriors[0]["Responses"], posteriors[0]["First"], posteriors[0]["P"]) == (1, 1, 0.75)
    risks = [row for row in rows_of("risk", study) if row["Method"] == "ASC"]
    assert risks[-1]["Coverage %"] == 100
    assert risks[-1]["Risk %"] == pytest.approx(100 - asc.accuracy.percent.value)


def pool_with_tokens(folder: Path, texts: Sequence[str], **broken: Any) -> Path:
    """A question whose responses' tokens are their characters, or what ``broken`` says."""
    path = folder / "t.jsonl"
    lines, responses = [], []
    for at, text in enumerate(texts):
        lengths = {"token_lengths": [1] * len(text), **broken}
        responses.append(response("7" if at % 2 else "8", len(text), text=text, **lengths))
    for name in ("q0", "q1"):
        lines.append(question(name, *responses))
        append_signals(signals_path(path), name, [{"token_logprob": [-0.1 * n for n in range(len(t))]} for t in texts])
    return write_lines(path, *lines)


def test_tokens_stand_beside_their_confidence(tmp_path: Path) -> None:
    texts = ["so & 8", "1\n7", "half an answer", "7 after all"]
    study = weighed(pool_with_tokens(tmp_path, texts), measure=Measure("token_logprob", "mean"))
    rows = rows_of("tokens", study)
    shown: dict[str, str] = {}
    for row in rows:
        shown[row["Response"]] = shown.get(row["Response"], "") + row["Text"]
    right, wrong = "right (answer 7)", "wrong (answer 8)"
    names = [f"Response {number}, {kind}" for number, kind in ((2, right), (4, right), (1, wrong), (3, wrong))]
    assert shown == dict(zip(names, [texts[1], texts[3], texts[0], texts[2]], strict=True))
    assert [(row["Token"], row["token_logprob"]) for row in rows[:3]] == [
        (1, 0.0),
        (2, pytest.approx(-0.1)),
        (3, pytest.approx(-0.2)),
    ]


@pytest.mark.parametrize("lengths", [None, [1, 1], [99] * 4])
def test_without_the_places_of_tokens_there_is_no_guess(tmp_path: Path, lengths: object) -> None:
    path = pool_with_tokens(tmp_path, ["abcd", "efgh"], token_lengths=lengths)
    rows = rows_of("tokens", weighed(path, measure=Measure("token_logprob", "mean")))
    assert len(rows) == 8 and {row["Text"] for row in rows} == {None}


@pytest.mark.parametrize("name", FIGURES)
def test_pools_that_cannot_tell_say_why(tmp_path: Path, name: str) -> None:
    lines = [question(f"q{n}", response("7", score=1.0)) for n in range(9)]
    unscored = write_lines(tmp_path / "bare.sqlite", question("q", response("7"), response("8")))
    alike, settings = write_lines(tmp_path / "right.sqlite", *lines), replace(SETTINGS, calibration_size=4)
    bare = weighed(unscored, "bare", measure=None)
    right = weighed(alike, "right", measure="recorded", settings=settings)
    for study in (bare, right):
        if name == "tradeoff":
            assert made(name, study).rows
        else:
            with pytest.raises(ReASCError, match=r"\w+ .{20}"):
                made(name, study)
