"""What is learned, to the digit: on labels, without, by mixture, and online, from scripted responses.

The layout of a calibration's file may change, its numbers may not: they are compared by the names of their fields.
"""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import langchain_reasc as lr
from langchain_reasc import ReASCRunnable
from langchain_reasc.answers import free_text
from langchain_reasc.calibration import ObservationStore
from langchain_reasc.exceptions import ReASCError

from .conftest import Runner
from .fakes import Reply, Scripted, saying, values_in
from .inner import wait_until_learned
from .setting import ONE, TOP_K

Golden = Callable[..., None]


def numbers(value: Any, name: str = "", found: dict[str, list[float]] | None = None) -> dict[str, list[float]]:
    """All numbers in a JSON value, by the name of the field they stand in; those of a name in order of size."""
    found = {} if found is None else found
    if isinstance(value, dict):
        for key, one in value.items():
            numbers(one, key if not key.isdigit() else name, found)
    elif isinstance(value, list):
        for one in value:
            numbers(one, name, found)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found[name] = sorted([*found.get(name, []), value])
    return {key: found[key] for key in sorted(found) if key != "schema_version"}


def learned(made: lr.Calibration, tmp_path: Path) -> dict[str, Any]:
    """What a calibration says, its numbers as they are in its file."""
    path = tmp_path / "calibration.json"
    lr.save_calibration(made, path)
    rule = made.rule()
    stream = [lr.Response(answer, score) for answer, score in zip("abacaabaaaabaaaa", [0.5, 1, 2, 3] * 4, strict=True)]
    after = lr.decide(rule | lr.Cap(16), stream)
    in_paper = made.as_in_paper().notices() if made.method != "consensus" else made.notices()
    return {
        "numbers": numbers(json.loads(path.read_text())),
        "measure": str(made.measure),
        "rule": rule.name,
        "decides": [after.answer, after.reason, after.samples, after.posterior, after.evidence],
        "notices": [[*map(values_in, notices)] for notices in (made.notices(), in_paper)],
        "guarantee": values_in(made.guarantee or ""),
        "gate promises": values_in(made.gate_promise() or ""),
    }


def drawn(question: str, index: int) -> Reply:
    """Even questions are easy, and the model is sure of them."""
    rng = random.Random(f"{question} {index}")
    sure = int(question[1:]) % 2 == 0
    told = [rng.gauss(2.5 if sure else 1.2, 0.4), rng.gauss(2.0, 0.5)]
    return Reply(f"it is {1 if sure else rng.choice([1, 1, 2, 3])}", -round(abs(told[index % 2]), 3) - 0.01)


def silent(question: str, index: int) -> Reply:
    return Reply(drawn(question, index).text, None)


def stating(question: str, index: int) -> Reply:
    reply = drawn(question, index)
    return Reply(f"{reply.text}\nConfidence: {min(99, int(-30 * (reply.logprob or 0)))}%", None)


QUESTIONS = [f"q{at}" for at in range(48)]
LABELLED = [(question, "1") for question in QUESTIONS]
MODEL = Scripted(script=drawn)
LEARNED: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "labels, any measure": ("calibrate", (MODEL, LABELLED), {}),
    "labels": ("calibrate", (MODEL, LABELLED), {"measure": TOP_K}),
    "labels, one sample": ("calibrate", (MODEL, LABELLED), {"max_samples": 1, "measure": TOP_K}),
    "labels, p_target": ("calibrate", (MODEL, LABELLED), {"p_target": 0.7, "measure": TOP_K, "seed": 3}),
    "labels, stated": ("calibrate", (Scripted(script=stating), LABELLED), {"ask_confidence": True}),
    "labels, several": ("calibrate", (MODEL, [(question, ["1", "3"]) for question in QUESTIONS]), {"measure": TOP_K}),
    "labels, free text": (
        "calibrate",
        (MODEL, LABELLED),
        {"answer": free_text(same=lambda one, other: one[-1] == other[-1]), "measure": TOP_K, "max_samples": 2},
    ),
    "unlabelled, any measure": ("calibrate", (MODEL, QUESTIONS), {}),
    "unlabelled, some known": ("calibrate", (MODEL, [*LABELLED[:12], *QUESTIONS[12:]]), {"measure": TOP_K}),
    "unlabelled, silent": ("calibrate", (Scripted(script=silent), QUESTIONS), {"max_samples": 8}),
    "unlabelled, threshold": (
        "calibrate",
        (MODEL, QUESTIONS),
        {"threshold": 0.9, "seed": 5, "measure": TOP_K},
    ),
}


class Twins:
    """The functions as methods, for the runner."""

    calibrate, acalibrate = staticmethod(lr.calibrate), staticmethod(lr.acalibrate)


# In both modes where it is quick, else in one of them.
MODES: list[Any] = [(name, mode) for name in ("labels", "unlabelled, silent") for mode in ("sync", "async")]
MODES += [
    pytest.param(
        name,
        ("sync", "async")[at % 2],
        marks=[] if name in ("labels, any measure", "labels, stated") else pytest.mark.slow,
    )
    for at, name in enumerate(LEARNED)
    if name not in ("labels", "unlabelled, silent")
]


@pytest.mark.full
@pytest.mark.parametrize(("name", "mode"), MODES)
def test_calibrating(name: str, mode: str, golden: Golden, tmp_path: Path) -> None:
    (method, arguments, options), run = LEARNED[name], Runner(mode)
    bars: list[tuple[int, int]] = []
    made = run(Twins, method, *arguments, **options, progress=lambda *pair: bars.append(pair))
    golden(learned(made, tmp_path))
    assert bars[-1] == (48, 48)
    assert made.fingerprint.model == "scripted"


@pytest.mark.parametrize("size", [3, 20, 64, 400])
def test_on_scores(size: int, golden: Golden, tmp_path: Path) -> None:
    """calibrate_offline and calibrate_mixture on numbers alone."""
    rng = random.Random(size)
    right = [rng.random() < 0.6 for _ in range(size)]
    scores = [round(rng.gauss(3.0 if one else 1.5, 0.6), 6) for one in right]
    for name, made in {
        "offline": lr.calibrate_offline(scores, right, measure=TOP_K, top_k=2, vocabulary_size=100),
        "offline, counting": lr.calibrate_offline(
            scores, right, measure=TOP_K, weight="count", scale=0.5, p_target=0.8, cross_validated=0.7
        ),
        "mixture": lr.calibrate_mixture(scores, measure=TOP_K),
        "mixture, lower target": lr.calibrate_mixture(scores, measure=TOP_K, p_target=0.7, seed=4),
    }.items():
        golden(learned(made, tmp_path), name)


WRONG: dict[str, Callable[[], Any]] = {
    "no question": lambda: lr.calibrate(MODEL, []),
    "no pair": lambda: lr.calibrate(MODEL, [{"question": "What is 1 + 1?"}]),  # type: ignore[list-item]
    "no file": lambda: lr.calibrate(MODEL, "nowhere.csv"),
    "no logprobs": lambda: lr.calibrate(Scripted(script=silent), LABELLED, measure=TOP_K),
    "all failed": lambda: lr.calibrate(saying(Reply("", error=ValueError("down"))), LABELLED[:2]),
    "max_samples": lambda: lr.calibrate(MODEL, LABELLED, max_samples=0),
    "concurrency": lambda: lr.calibrate(MODEL, LABELLED, concurrency=0),
    "p_target": lambda: lr.calibrate(MODEL, LABELLED[:12], p_target=1.0, measure=TOP_K),
    "unlabelled, none": lambda: lr.calibrate(MODEL, []),
    "unlabelled, threshold": lambda: lr.calibrate(MODEL, QUESTIONS[:4], threshold=0.4, measure=TOP_K),
    "unlabelled, too few": lambda: lr.calibrate(MODEL, QUESTIONS[:1]),
    "unlabelled, no file": lambda: lr.calibrate(MODEL, "nowhere.txt"),
    "scores and labels": lambda: lr.calibrate_offline([1, 2], [True], measure=TOP_K),
    "one score": lambda: lr.calibrate_offline([1], [True], measure=TOP_K),
    "equal scores": lambda: lr.calibrate_mixture([1, 1, 1], measure=TOP_K),
    "no number": lambda: lr.calibrate_mixture([1, 2, float("nan")], measure=TOP_K),
    "unknown weight": lambda: lr.calibrate_offline([1, 2], [1, 0], measure=TOP_K, weight="vibes"),
    "a weight of the appendix": lambda: lr.calibrate_offline([1, 2], [1, 0], measure=TOP_K, weight="sigmoid"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_calibrated(name: str) -> None:
    with pytest.raises(ReASCError):
        WRONG[name]()


@pytest.mark.full
@pytest.mark.parametrize(
    ("audit", "script", "mode"),
    [(1.0, drawn, "sync"), pytest.param(1.0, drawn, "async", marks=pytest.mark.slow), (0.3, silent, "sync")],
    ids=["all audited-sync", "all audited-async", "silent-sync"],
)
def test_online(audit: float, script: Any, mode: str, golden: Golden, tmp_path: Path) -> None:
    """60 questions one by one: what is launched, audited and said for each, and what is learned at the end."""
    path, run = tmp_path / "online.sqlite", Runner(mode)
    options: dict[str, Any] = {"calibration": lr.Online(state=path, audit=audit), "max_samples": 6}
    options["confidence"] = TOP_K
    reasc = ReASCRunnable(model=Scripted(script=script), **options, **ONE)
    lines = []
    for at in range(60):
        result = run(reasc, "solve", f"q{at}")
        wait_until_learned(reasc, keep=at == 59)
        decided = f"{result.answer} {result.decision.reason} {len(result.responses)}"
        lines.append(f"{decided} {values_in(result.notices[0])}")
    golden(lines)
    assert reasc.learned is not None
    golden(learned(reasc.learned, tmp_path), "learned", digits=6)
    known = ObservationStore.open(path).observations([TOP_K])
    kept = [
        {"answers": list(one.answers), "scores": [float(x) for x in one.scores[0] if x == x], "decided": one.decided}
        for one in known
    ]
    state = {"seen": known.seen, "audits": [*known.audits], "evidence": known.evidence}
    golden(numbers(state | {"questions": kept}), "state", digits=6)
    again = ReASCRunnable(model=Scripted(script=script), **options, **ONE)
    assert again.learned is not None and again.learned.n >= reasc.learned.n, "it calibrates on all rows at its start"


@pytest.mark.full
def test_mixture_learns_by_itself(run: Runner, golden: Golden, tmp_path: Path) -> None:
    reasc = ReASCRunnable(model=Scripted(script=drawn), calibration="mixture", confidence=TOP_K, max_samples=4, **ONE)
    accounts = [one.response_metadata["reasc"] for one in run(reasc, "batch", QUESTIONS)]
    golden([[one["answer"], one["reason"], one["launched"], one["method"]] for one in accounts])
