"""``reasc inspect``: what was learned, in words."""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.test_commands import reasc
from langchain_reasc.calibration import (
    Learner,
    Observation,
    Observations,
    ObservationStore,
    Prediction,
    Share,
    save_calibration,
)
from langchain_reasc.method.confidence import Measure
from langchain_reasc.models.fingerprint import Fingerprint

MEASURE = Measure("top_k", "mean")
MODEL = Fingerprint(model="some-model", sampling={"temperature": 0.7}, answer="boxed")


def question(at: int) -> Observation:
    rng = np.random.default_rng(at)
    right = rng.random(6) < rng.choice([0.5, 0.95])
    answers = tuple(np.where(right, 0, rng.integers(1, 4, 6)).tolist())
    scores = (2.5 * right + rng.normal(size=6))[None]
    leading = Counter(answers).most_common(1)[0][0]
    # Some answers are wrong however many responses give them.
    known = bool(leading == 0 and rng.random() < 0.5 + 0.07 * answers.count(0)) if at % 2 else None
    said = 0.6 if at > 400 else None
    return Observation(answers, scores, decided=6, answer=leading, id=f"{at:016x}", correct=known, p_correct=said)


def store(path: Path, questions: range, made_of: int = 20, **about: Any) -> Path:
    """A store of these; one in ten was audited."""
    known, written = Observations(), ObservationStore.create(path)
    for at in questions:
        shown = (Prediction("audits", 2 / 3, 0.3, float(at % 20 == 5)),) if at % 10 == 5 else ()
        known.append(replace(question(at), predictions=shown))
    with written.transaction():
        for one in known:
            written.append(one, [MEASURE])
        written.describe(MODEL.model_copy(update=about), {"top_k": {"top_k": made_of, "vocabulary_size": None}})
    written.close()
    return path


@pytest.mark.full
def test_a_store_in_words(tmp_path: Path) -> None:
    path = store(tmp_path / "a.sqlite", range(600))
    shown = reasc("inspect", path).stdout
    assert all(len(line) < 80 for line in shown.splitlines())
    text = " ".join(shown.split())
    assert "Model some-model, temperature 0.7, answer boxed" in text
    assert "512 questions; 512 kept" in text and "6.0 responses a question" in text
    assert "25 times of 51" in text and "49% [35%, 63%]; 67% " in text
    assert "256 of 512 " in text
    right = sum(bool(question(at).correct) for at in range(88, 600))
    assert f"{right} right, {256 - right} wrong, which is {Share(right, 256)} right" in text
    assert "Reliability p_correct" in text and "100 answers" in text
    assert "top_k/mean" in text and "P(correct) 0." in text
    assert re.search("Drift evidence 0 of second votes, [0-9]+ of audits, 0 of confidence; at 5,000 ", text)
    bars = [int(line.split()[-1]) for line in shown.splitlines() if "#" in line]
    assert sum(bars) == 512 and len(bars) > 3
    held = json.loads(reasc("inspect", path, "--json").stdout)
    assert held["state"]["seen"] == 512 and held["fingerprint"]["model"] == "some-model"
    saved = Learner.from_store(ObservationStore.open(path)).calibration
    assert saved is not None
    calibration = save_calibration(saved, tmp_path / "c.json")
    assert shown.startswith("Expect about ") and "in place of 16" in shown
    said = reasc("inspect", calibration).stdout
    first, _, learned = said.partition("\n\n")
    assert (
        learned.split("Model  ")[0] in shown
        and first.startswith("Expect fewer samples")
        and f"--calibration {calibration}" in first
    )
    assert json.loads(reasc("inspect", calibration, "--json").stdout)["method"] == "consensus"


def test_a_store_that_has_seen_little(tmp_path: Path) -> None:
    shown = reasc("inspect", store(tmp_path / "a.sqlite", range(3))).stdout
    assert shown.startswith("Too little was seen")
    assert "3 kept" in shown and "Model        some-model" in shown
    assert "Audits" not in shown and "Reliability" not in shown


def test_what_is_no_store_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("no calibration")
    for name in ("missing", "text", "."):
        assert reasc("inspect", name, code=1).stderr.startswith("error: ")


def test_plotting_is_a_command_of_its_own(tmp_path: Path) -> None:
    path = store(tmp_path / "a.sqlite", range(3))
    refused = " ".join(reasc("inspect", path, "--plot", "a.svg", code=2).stderr.replace("│", " ").split())
    assert "--plot is a command of its own: reasc plot" in refused


def test_kinds_of_request_in_words(tmp_path: Path) -> None:
    written = ObservationStore.create(tmp_path / "a.sqlite")
    for at in range(70):
        written.append(replace(question(at), kind="0f3a" if at < 64 else "77ab"), [MEASURE])
    written.describe(MODEL, {})
    text = " ".join(reasc("inspect", tmp_path / "a.sqlite").stdout.split())
    assert "Kinds of request: 2, of which 1 " in text
    assert "0f3a 64 questions, 6.0 responses" in text and "77ab 6 questions, 6.0 responses" in text
