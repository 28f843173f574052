"""What told outcomes do to cost, accuracy and ``p_correct``, by whose outcomes are told, on recorded responses.

python -m benchmarks.told_outcomes pool.sqlite      learn from 256 questions, test on the rest, 12 times
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from langchain_reasc_lab.pools import Pool, PoolScores, read_pool

from benchmarks.command import parser_of
from langchain_reasc.calibration import Observation, fit, reliability_of
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import ASC, Cap, Response, decide

TOLD: Final = {
    "none": (0.0, 0.0),
    "one in five, at random": (0.2, 0.2),
    "all": (1.0, 1.0),
    "half of the wrong, .05 of the right": (0.05, 0.5),
    ".9 of the wrong, .1 of the right": (0.1, 0.9),
    ".25 of the wrong, .9 of the right": (0.9, 0.25),
}
"""Name -> the shares of right and wrong answers whose outcome is told."""
_BUDGET: Final = 16
_SHUFFLES: Final = 12
Row = tuple[Sequence[Response], frozenset[str]]
"""The responses to a question, and its right answers."""


def learned_from(row: Row, told: tuple[float, float], rng: np.random.Generator, *, scored: bool) -> Observation:
    """Return what counting votes leaves of a question, with its outcome where that is told."""
    responses, right = row
    decision = decide(ASC() | Cap(_BUDGET), responses)
    used, numbers = responses[: decision.samples], dict[str, int]()
    answers = tuple(None if one.answer is None else numbers.setdefault(one.answer, len(numbers)) for one in used)
    scores = np.array([[np.nan if one.score is None else one.score for one in used]])
    is_right = decision.answer in right
    tell = decision.answer is not None and rng.random() < told[0 if is_right else 1]
    answer = None if decision.answer is None else numbers[decision.answer]
    return Observation(
        answers,
        scores if scored else np.empty((0, len(used))),
        decided=decision.samples,
        answer=answer,
        correct=is_right if tell else None,
    )


def figures(rows: Sequence[Row], measure: Measure | None, told: tuple[float, float], seed: int) -> list[float]:
    """Return what is found on questions that were not learned from, and how many outcomes were told of the others.

    Returns:
        samples and accuracy, the mean of ``p_correct``, its calibration error, what that is by chance alone, and how
        many outcomes were told; NaN if there is no ``p_correct``.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(rows))
    questions = [learned_from(rows[at], told, rng, scored=measure is not None) for at in order[:256]]
    calibration = fit(questions, [measure] if measure else [], budget=_BUDGET)
    rule = calibration.rule(budget=_BUDGET, on_missing_confidence="count") | Cap(_BUDGET)
    samples, right, said = list[int](), list[bool](), list[Observation]()
    for at in order[256:]:
        responses, accepted = rows[at]
        decision = decide(rule, responses)
        samples.append(decision.samples)
        right.append(decision.answer in accepted)
        if calibration.p_correct and (share := calibration.p_correct.support(decision)) is not None:
            likely = calibration.p_correct.probability(share)
            said.append(Observation((0,), np.empty((0, 1)), p_correct=likely, correct=right[-1]))
    known = sum(one.correct is not None for one in questions)
    found = reliability_of(said)
    mean = float(np.mean([one.p_correct for one in said if one.p_correct is not None])) if said else np.nan
    errors = [found.error, found.by_chance] if found else [np.nan, np.nan]
    return [float(np.mean(samples)), float(np.mean(right)), mean, *errors, known]


def table(pool: Pool, measure: Measure | None) -> None:
    """Print a row for each way in which outcomes are told."""
    each = PoolScores(pool).responses(measure)
    rows = [(responses, frozenset(one.references)) for responses, one in zip(each, pool.questions, strict=True)]
    print(f"\nlearned from answers{'' if measure is None else f' and {measure}'}")
    print(
        f"{'outcomes told':36} {'samples':>7} {'accuracy':>9} {'p_correct':>9} {'off by':>7} {'chance':>7} {'told':>6}"
    )
    for name, told in TOLD.items():
        found = np.array([figures(rows, measure, told, seed) for seed in range(_SHUFFLES)])
        said = [f"{np.nanmean(one):.3f}" if np.isfinite(one).any() else "-" for one in found.T[2:5]]
        likely = f"{said[0]:>9} {said[1]:>7} {said[2]:>7}"
        print(f"{name:36} {found[:, 0].mean():7.2f} {found[:, 1].mean():9.4f} {likely} {found[:, 5].mean():6.0f}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures with and without confidence."""
    parser = parser_of("told_outcomes", __doc__)
    parser.add_argument("pool", type=Path, help="a pool that `reasc record` or `reasc demo` made")
    pool = read_pool(parser.parse_args(arguments).pool)
    for measure in (None, Measure("token_logprob", "average_group", 16)):
        table(pool, measure)


if __name__ == "__main__":
    main()
