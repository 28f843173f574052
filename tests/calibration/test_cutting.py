"""Below which confidence samples are cut is learned beside the measure that is trusted, and only with one."""

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from langchain_reasc.calibration import AUROC, Calibration, Cutting, Observed, calibrate_consensus
from langchain_reasc.method import ASC, Cap, ConfidenceCut, Measure, Response, decide

WINDOWS = (8, 16, 32)
MEASURES = [
    Measure("token_logprob", "mean"),
    *(Measure("token_logprob", "lowest_group", window) for window in WINDOWS),
    Measure("token_logprob", "average_group", 8),
]


def questions(n: int = 64, *, tells: float = 1.0, tokens: tuple[int, int] = (20, 28), seed: int = 0) -> list[Observed]:
    """Questions as ASC leaves them, scored from token signals that are higher in right responses."""
    rng, made = np.random.default_rng(seed), []
    for _ in range(n):
        right = rng.random(16) < rng.uniform(0.4, 0.9)
        answers = np.where(right, 0, rng.integers(1, 5, 16)).tolist()
        signals = [rng.normal(-1 + 0.5 * tells * one, 0.8, rng.integers(*tokens)) for one in right]
        used = decide(ASC() | Cap(16), [Response(str(answer)) for answer in answers]).samples
        scores = [[measure({"token_logprob": one}) for one in signals[:used]] for measure in MEASURES]
        made.append(Observed(tuple(answers[:used]), np.array(scores)))
    return made


def learned(given: list[Observed], measures: list[Measure] = MEASURES, **options: Any) -> Calibration:
    return calibrate_consensus(given, measures, **{"explained": False, "cut_quantile": 0.2, **options})


@pytest.mark.parametrize("quantile", [0.1, 0.2, 0.5])
def test_the_threshold_is_a_quantile_of_what_first_responses_fall_to(quantile: float) -> None:
    given = questions()
    made = learned(given, cut_quantile=quantile)
    assert made.measure and made.cutting
    row = MEASURES.index(Measure("token_logprob", "lowest_group", made.cutting.window))
    firsts = np.array([one.scores[row, 0] for one in given])
    assert made.cutting.threshold == pytest.approx(np.quantile(firsts, quantile), rel=1e-5)
    assert made.cutting.quantile == quantile and made.cutting.within.low >= 0.6
    assert made.cut == ConfidenceCut("token_logprob", made.cutting.window, made.cutting.threshold)
    assert Calibration.model_validate_json(made.model_dump_json()).cut == made.cut


def test_the_window_is_one_that_most_responses_are_longer_than() -> None:
    long = learned(questions(tokens=(20, 28))).cutting
    short = learned(questions(tokens=(10, 13))).cutting
    assert long and long.window in (8, 16) and short and short.window == 8
    assert learned(questions(tokens=(5, 8))).cutting is None


def test_of_windows_that_tell_as_much_it_is_the_smallest() -> None:
    """Here the lowest mean of 16 tokens is made to tell as much as that of 8, or far more."""
    for noise, window in ((0.2, 8), (3.0, 16)):
        given, rng = questions(), np.random.default_rng(0)
        for one in given:
            one.scores[2] = one.scores[1]
            one.scores[1] = one.scores[1] - noise * rng.random(one.scores[1].size)
            one.scores[3] = one.scores[0]
        made = learned(given)
        assert made.cutting and made.cutting.window == window


@pytest.mark.parametrize(
    ("given", "options"),
    [
        (questions(tells=0.0), {}),  # nothing is trusted
        (questions(), {"cut_quantile": 0}),
        (questions(), {"measures": MEASURES[:1]}),  # no lowest group mean to learn from
        (questions(), {"measures": MEASURES[1:]}),  # it cannot be told which responses are longer than a window
    ],
)
def test_else_none_is_cut(given: list[Observed], options: dict[str, Any]) -> None:
    measures = options.pop("measures", MEASURES)
    rows = [MEASURES.index(one) for one in measures]
    made = learned([Observed(one.answers, one.scores[rows]) for one in given], measures, **options)
    assert made.cutting is None and made.cut is None


def test_where_the_lowest_group_says_nothing_none_is_cut() -> None:
    rng, given = np.random.default_rng(0), questions()
    for one in given:
        one.scores[1:4] = -5 - rng.random(one.scores[1:4].shape)  # always below the mean
    made = learned(given)
    assert made.measure and made.cutting is None


def test_a_calibration_without_the_signal_of_each_token_cuts_none() -> None:
    made = learned(questions())
    fields = made.model_dump() | {"signal": "verbalized", "score": "mean"}
    with pytest.raises(ValidationError, match="cutting needs the signal of each token"):
        Calibration.model_validate(fields)
    within = AUROC(value=0.8, low=0.7, high=0.9)
    with pytest.raises(ValidationError):
        Cutting(window=0, quantile=0.2, threshold=-1.0, within=within)
