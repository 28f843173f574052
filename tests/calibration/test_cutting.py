"""Below which confidence samples are cut is learned beside the measure that is trusted, and only with one."""

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from langchain_reasc.calibration import AUROC, Calibration, Cutting, Observed, calibrate_consensus
from langchain_reasc.method import ASC, Cap, ConfidenceCut, Measure, Response, decide, decide_with_cuts

WINDOWS = (8, 16, 32)
MEASURES = [
    Measure("token_logprob", "mean"),
    *(Measure("token_logprob", "lowest_group", window) for window in WINDOWS),
    Measure("token_logprob", "average_group", 8),
]


def questions(
    n: int = 64,
    *,
    tells: float = 1.0,
    tokens: tuple[int, int] = (20, 28),
    right: tuple[float, float] = (0.4, 0.9),
    seed: int = 0,
) -> list[Observed]:
    """Questions as ASC leaves them, scored from token signals that are higher in right responses."""
    rng, made = np.random.default_rng(seed), []
    for _ in range(n):
        correct = rng.random(16) < rng.uniform(*right)
        answers = np.where(correct, 0, rng.integers(1, 5, 16)).tolist()
        signals = [rng.normal(-1 + 0.5 * tells * one, 0.8, rng.integers(*tokens)) for one in correct]
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
    assert (made.uncut is None) == (made.measure is None or "cut_quantile" in options)


@pytest.mark.parametrize(("right", "cuts"), [((0.4, 0.9), True), ((0.9, 1.0), False)])
def test_samples_are_cut_where_less_evidence_is_lost_than_tokens_are_saved(
    right: tuple[float, float], cuts: bool
) -> None:
    """Where nearly all responses are right, so are the weak ones: then half a sample costs less than its vote."""
    given = questions(400, right=right, tells=1.5)
    made = learned(given)
    assert made.measure and made.rule_ and (made.cutting is not None) == cuts == (made.uncut is None)
    window = made.cutting.window if made.cutting else 8
    row, lowest = MEASURES.index(made.measure), MEASURES.index(Measure("token_logprob", "lowest_group", window))
    below = np.quantile([one.scores[lowest, 0] for one in given], 0.2)
    scores, logits = np.array([(one.score, np.log(one.p / (1 - one.p))) for one in made.rule_.odds]).T
    k, evidence = made.rule_.parameters["alternatives"], {True: list[float](), False: list[float]()}
    for one in given:
        for score, weak in zip(one.scores[row], one.scores[lowest] < below, strict=True):
            odds = float(np.exp(np.interp(score, scores, logits)))
            p = odds / (1 + odds)
            evidence[bool(weak)].append((p - (1 - p) / k) * np.log(k * odds))
    share = np.mean(evidence[True]) / np.mean(evidence[True] + evidence[False])
    assert (share < 0.5) == cuts
    if made.cutting:
        assert made.cutting.evidence == pytest.approx(share, rel=1e-6)
    else:
        assert made.uncut and f"a weak response has {share:.0%} of the evidence" in made.uncut


def test_the_promise_is_that_of_a_rule_that_does_not_know_what_was_cut() -> None:
    given = questions(200, right=(0.3, 0.8))
    for quantile in (0.0, 0.2):
        made = learned(given, cut_quantile=quantile, explained=True)
        assert made.measure and (made.cut is not None) == bool(quantile)
        rule, others = made.rule(), {"evidence": 0, "budget": 0}
        for one in given:
            responses = one.responses(MEASURES.index(made.measure))
            weak = [False] * len(responses)
            if made.cut:
                row = MEASURES.index(Measure("token_logprob", "lowest_group", made.cut.window))
                weak = (one.scores[row] < made.cut.threshold).tolist()
            counted = decide(ASC() | Cap(16), responses)
            found = decide_with_cuts(rule, responses, weak, 16).decision
            assert counted.reason
            others[counted.reason] += counted.answer != found.answer
        promised = made.guarantee or ""
        assert f"are sufficient {others['evidence']} would be answered otherwise" in promised
        assert f"are split to the end, {others['budget']} would" in promised


def test_few_questions_do_not_tell_what_is_weak() -> None:
    assert learned(questions(64)).cut
    few = learned(questions(63))
    assert few.measure and not few.cut and "64 questions tell" in (few.uncut or "") and "63 were" in (few.uncut or "")


def test_where_the_lowest_group_says_nothing_none_is_cut() -> None:
    rng, given = np.random.default_rng(0), questions()
    for one in given:
        one.scores[1:4] = -5 - rng.random(one.scores[1:4].shape)  # always below the mean
    made = learned(given)
    assert made.measure and made.cutting is None and "with an AUROC of" in (made.uncut or "")


def test_a_calibration_without_the_signal_of_each_token_cuts_none() -> None:
    made = learned(questions())
    fields = made.model_dump() | {"signal": "verbalized", "score": "mean"}
    with pytest.raises(ValidationError, match="cutting needs the signal of each token"):
        Calibration.model_validate(fields)
    within = AUROC(value=0.8, low=0.7, high=0.9)
    with pytest.raises(ValidationError):
        Cutting(window=0, quantile=0.2, threshold=-1.0, within=within, evidence=0.2)
