"""What a calibration says it will do: the sentence and the next step for each kind, and the samples that it expects."""

import numpy as np
import pytest

from calibration.test_escalation import AGREES, WRONG, known
from calibration.test_fit import MEASURES, many
from langchain_reasc import load_calibration, save_calibration
from langchain_reasc.calibration import Calibration, Fingerprint, Observation, fit, with_expectation
from langchain_reasc.method import Cap, Response, decide

COLD = Fingerprint(sampling={"temperature": 0})


def asked(
    *questions: list[int | None], signal: str = "good", labelled: bool = False, seed: int = 0
) -> list[Observation]:
    """Questions with these answers, 0 being right, and a score that tells the right ones, or nothing."""
    rng, rows = np.random.default_rng(seed), []
    for answers in questions:
        right = np.array([answer == 0 for answer in answers])
        scores = 2.5 * right * (signal == "good") + rng.normal(size=right.size)
        rows.append(Observation(tuple(answers), scores[None], right=tuple(right.tolist()) if labelled else ()))
    return rows


def labelled(rows: list[Observation]) -> list[Observation]:
    return asked(*(list(one.answers) for one in rows), labelled=True)


def made(rows: list[Observation], cut_off: float | None = None, sampled: Fingerprint | None = None) -> Calibration:
    measures = MEASURES[: rows[0].scores.shape[0]]
    return with_expectation(fit(rows, measures, fingerprint=sampled), rows, measures, budget=16, cut_off=cut_off)


HALF: list[list[int | None]] = [[0, None, 0, None, 0, None, 0]] * 32
SCATTERED: list[list[int | None]] = [list(np.random.default_rng(at).integers(0, 2, 16).tolist()) for at in range(40)]
FIRSTS: list[list[int | None]] = [[at % 2] for at in range(64)]
ESCALATED = {"costs": (1.0, 10.0)}


@pytest.mark.parametrize(
    ("calibration", "says", "advises"),
    [
        (lambda: made(asked(*HALF), cut_off=0.4), "40%", "max_tokens=..."),
        (lambda: made(asked(*HALF), cut_off=0.1), "43%", "answer=..."),
        (
            lambda: made(asked(*HALF)),
            "43%",
            "max_tokens=...",
        ),
        (
            lambda: fit(asked(*[[1, 1, 2, 1]] * 20, labelled=True), MEASURES[:1], method="paper"),
            "20 first responses",
            "answer_field=...",
        ),
        (lambda: made(many(8)), "8 questions", "64 questions"),
        (
            lambda: made(asked(*[[0] * 4] * 30), sampled=COLD),
            "temperature 0",
            "temperature",
        ),
        (lambda: made(asked(*[[0] * 4] * 30)), "same answer", "without ReASC"),
        (
            lambda: made(asked(*SCATTERED, signal="noise")),
            "saves nothing",
            "leave it out",
        ),
        (
            lambda: made(asked(*SCATTERED, signal="noise", labelled=True)),
            "p_correct",
            "ReASCRunnable(",
        ),
        (
            lambda: made(asked(*FIRSTS, signal="noise", labelled=True)),
            "saves nothing",
            "max_samples=...",
        ),
        (lambda: made(many(64)), "in place of 16", "ReASCRunnable("),
        (lambda: made(labelled(many(64))), "right", "ReASC"),
        (lambda: made(labelled(many(32))), "right", "64 right answers"),
        (
            lambda: fit(many(64), MEASURES),
            "Expect fewer samples",
            "ReASCRunnable(",
        ),
        (
            lambda: Calibration.of_escalation(known([AGREES] * 90, within=0.05), None, COLD, COLD),
            "1 equal vote",
            "ReASCRunnable(",
        ),
        (
            lambda: Calibration.of_escalation(known([WRONG] * 40, within=0.05), None, COLD, COLD),
            "Nothing is saved",
            "within=0.1",
        ),
    ],
)
def test_a_sentence_says_what_it_will_do_and_what_to_do_next(calibration, says, advises, tmp_path) -> None:  # type: ignore[no-untyped-def]
    one = calibration()
    sentence, _, advice = str(one).partition(" Next: ")
    assert says in sentence == one.summary() and advises in advice and advice.endswith(".")
    assert len(sentence) < 200 and one.summary() in repr(one)
    assert str(load_calibration(save_calibration(one, tmp_path / "c.json"))) == str(one)


@pytest.mark.full
@pytest.mark.parametrize("scored", [True, False])
def test_expected_samples_are_those_of_other_questions(scored: bool) -> None:
    """Learned from 64 questions that ended when counted votes were clear; the others have all 16 responses."""
    rng = np.random.default_rng(1)
    for seed in range(3):
        rows = [
            one if scored else Observation(one.answers, np.empty((0, len(one.answers)))) for one in many(64, seed=seed)
        ]
        calibration = made(rows)
        rule, drawn = calibration.rule() | Cap(16), []
        for likely in rng.uniform(0.4, 1.0, 400):
            right = rng.random(16) < likely
            answers, scores = np.where(right, 0, rng.integers(1, 5, 16)), 2.5 * right + rng.normal(size=16)
            given = zip(answers.tolist(), scores.tolist(), strict=True)
            drawn.append(decide(rule, [Response(str(answer), score) for answer, score in given]).samples)
        assert calibration.expected is not None and calibration.expected.samples is not None
        assert calibration.expected.samples == pytest.approx(np.mean(drawn), rel=0.2)
        assert calibration.expected.uncalibrated > calibration.expected.samples  # type: ignore[operator]
