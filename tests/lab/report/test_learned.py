"""``reasc plot``: its panels show the numbers that ``reasc inspect`` says in words."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.test_commands import reasc
from cli.test_inspect import MEASURE, question, store
from langchain_reasc_lab.report.learned import draw_learned

from langchain_reasc.calibration import (
    AUROC,
    Calibration,
    Gate,
    Learner,
    Observation,
    ObservationStore,
    Share,
    calibrate_offline,
    reliability_of,
    save_calibration,
)
from langchain_reasc.exceptions import CalibrationDataError, MissingExtraError

pytest.importorskip("matplotlib")


def panels(*arguments: Any) -> dict[str, Any]:
    """Title -> panel, without those that are empty."""
    return {axes.get_title(): axes for axes in draw_learned(*arguments).axes if axes.axison}


def shares(axes: Any) -> list[tuple[float, float, float, float]]:
    """What is drawn with an interval: where, the share, and both ends."""
    return [
        (*line.get_xydata()[at].tolist(), *bar.get_segments()[at][:, 1].tolist())
        for line, _, (bar,) in axes.containers
        for at in range(len(line.get_xydata()))
    ]


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store(tmp_path_factory.mktemp("learned") / "a.sqlite", range(180, 560))


def test_a_store(learned: Path, tmp_path: Path) -> None:
    assert "wrote" in reasc("plot", learned, tmp_path / "new" / "a.svg").stderr
    assert (tmp_path / "new" / "a.svg").read_text().startswith("<?xml")
    words = " ".join(reasc("inspect", learned).stdout.split())
    known = Learner.from_store(ObservationStore.open(learned))
    calibration, questions = known.calibration, [*known.observations]
    assert calibration is not None
    drawn = panels(calibration, questions)
    assert len(drawn) == 6 and "6.0 responses a question" in drawn
    curve = dict(drawn["one more response agrees"].lines[0].get_xydata().tolist())
    assert f"agree: {curve[1]:.0%} after 1, {curve[2]:.0%} after 2, {curve[4]:.0%} after 4" in words
    panel, told = drawn["an answer is right, by its support"], calibration.p_correct
    assert panel.lines[0].get_xydata().tolist() == [list(point) for point in told.points]
    assert f"P(correct) {told.points[0][1]:.2f} [{told.low[0]:.2f}, {told.high[0]:.2f}] where" in words
    assert len(shares(panel)) > 4
    [band] = [one for one in panel.collections if len(one.get_paths()[0].vertices) > 2 * len(told.low)]
    ends = {tuple(end) for end in band.get_paths()[0].vertices.tolist()}
    supports = [at for at, _ in told.points]
    assert {*zip(supports, told.low, strict=True), *zip(supports, told.high, strict=True)} <= ends
    found = reliability_of(questions)
    assert found is not None
    reliable = drawn[f"p_correct is off by {found.error:.2f} ({found.by_chance:.2f} by chance)"]
    said, share = found.bins[0]
    assert shares(reliable)[0] == pytest.approx((said, share.value, *share.interval))
    after_one = dict(drawn["after one response, by its score"].lines[0].get_xydata().tolist())
    knots = [score for score, _ in calibration.rule_.scores.knots]
    assert [*after_one] == knots
    for at in (knots[len(knots) // 10], knots[len(knots) // 2], knots[9 * len(knots) // 10]):
        assert f"{after_one[at]:.0%} if it scores {at:.3g}" in words
    audited = [question for question in questions if question.predictions]
    audits = shares(drawn[f"{len(audited)} audits: one more response agrees"])
    came = Share(sum(int(question.predictions[0].came) for question in audited), len(audited))
    assert audits == [pytest.approx((2 / 3, came.value, *came.interval))]


def test_agreement_is_that_of_questions_on_which_votes_were_counted(learned: Path) -> None:
    """A learned rule that weighs votes goes on where confidence is low, so that what it saw agrees less."""
    calibration = Learner.from_store(ObservationStore.open(learned)).calibration
    assert calibration is not None
    given = [(0, 0, 0), (0, None, 0, 1), (0, 1, 1), (2, None), (0,)]
    seen = [replace(question(0), answers=one, scores=np.zeros((1, len(one)))) for one in given]
    unlike = replace(question(0), answers=(0, 1), scores=np.zeros((1, 2)), counted=False)
    drawn = panels(calibration, [*seen, unlike])
    of_two, of_three = Share(2, 3), Share(1, 2)
    expected = [(1, of_two.value, *of_two.interval), (2, of_three.value, *of_three.interval)]
    assert np.array(shares(drawn["one more response agrees"])) == pytest.approx(np.array(expected))
    unweighed = calibration.model_copy(update=dict.fromkeys(("signal", "score", "window", "mean", "std")))
    alone = [replace(one, scores=np.empty((0, len(one.answers)))) for one in (*seen, unlike)]
    assert shares(panels(unweighed, alone)["one more response agrees"])[0][1] == pytest.approx(2 / 4)


@pytest.fixture(scope="module")
def offline() -> Calibration:
    """Algorithm 1 on a score that separates well, between questions and within."""
    rng = np.random.default_rng(0)
    right = rng.random(60) < 0.6
    within = AUROC(value=0.8, low=0.7, high=0.9)
    return calibrate_offline(rng.normal(2.0 * right, 0.8), right, measure=MEASURE, within=within)


@pytest.mark.parametrize(
    ("gate", "unweighed", "heaviest"),
    [
        (Gate(threshold=1.5), None, np.exp(0.7 * 2)),
        (Gate(threshold=1.5), "too few", 1.0),
        (Gate(threshold=None, closed_because="too few"), None, np.exp(0.7 * 2)),
    ],
)
def test_a_calibration_on_labels(
    offline: Calibration, gate: Gate, unweighed: str | None, heaviest: float, tmp_path: Path
) -> None:
    calibration = offline.model_copy(update={"gate": gate, "unweighed": unweighed})
    path = save_calibration(calibration, tmp_path / "c.json")
    reasc("plot", path, tmp_path / "c.png")
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    drawn = panels(calibration)["what a vote weighs, and the gate"]
    weights, *gates = (line.get_xydata()[-1].tolist() for line in drawn.lines)
    assert weights[1] == pytest.approx(heaviest) and [one[0] for one in gates] == ([1.5] if gate.threshold else [])


def test_nothing_to_draw(offline: Calibration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [*panels(None, [Observation((0, 0), np.empty((0, 2)))])] == ["2.0 responses a question"]
    with pytest.raises(CalibrationDataError, match="nothing to draw"):
        draw_learned(None)
    path = save_calibration(offline, tmp_path / "c.json")
    assert ".svg" in reasc("plot", path, "c.foo", code=2).stderr
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(MissingExtraError, match=r"langchain-reasc\[lab\]"):
        draw_learned(offline)
    assert "[lab]" in reasc("plot", path, tmp_path / "c.svg", code=1).stderr
