"""``fit``, with labels and without: which scores are read, what labels add, and what is recorded."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from langchain_reasc.calibration import (
    DEFAULT_AGREEMENT,
    READ_SCORES,
    SCORED_AGREEMENT,
    Calibration,
    Observation,
    fit,
    fit_agreement,
    fit_prior,
    load_calibration,
    save_calibration,
)
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.agreement import Agreement
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import ASC, Cap, ReASC, Response, decide

MEASURES = [Measure("top_k", "mean"), Measure("neg_entropy", "mean")]


@cache
def many(n: int = 64, signal: str = "good", seed: int = 0) -> list[Observation]:
    """Questions as ASC leaves them, with a second measure that is noise.

    Args:
        n: how many.
        signal: what the first measure tells: good, noise, between (of questions only), or inverted.
        seed: of it all.
    """
    rng, made = np.random.default_rng(seed), []
    for _ in range(n):
        likely = rng.uniform(0.4, 1.0)
        right = rng.random(16) < likely
        answers = np.where(right, 0, rng.integers(1, 5, 16)).tolist()
        used = decide(ASC() | Cap(16), [Response(str(answer)) for answer in answers]).samples
        tells = {"good": 2.5 * right, "inverted": -2.5 * right, "between": 6 * likely, "noise": 0.0}[signal]
        scores = np.stack([tells + rng.normal(size=16), rng.normal(size=16)])
        made.append(Observation(tuple(answers[:used]), scores[:, :used]))
    return made


def questions(n: int = 64, signal: str = "good", seed: int = 0) -> list[Observation]:
    return [Observation(one.answers, one.scores.copy()) for one in many(n, signal, seed)]


def unscored(*answers: int | None) -> Observation:
    return Observation(answers, np.zeros((0, len(answers))))


def labelled(given: Sequence[Observation], known: int, right: int = 0) -> list[Observation]:
    """Label all responses to the first questions; this answer is right."""
    return [
        replace(one, right=tuple(answer == right for answer in one.answers)) if at < known else one
        for at, one in enumerate(given)
    ]


def test_scores_are_read_and_set_the_rule() -> None:
    made, short = (fit(questions(), MEASURES, explained=flag) for flag in (True, False))
    assert (made.measure, made.untrusted, made.method, made.n) == (MEASURES[0], None, "consensus", 64)
    rule = made.rule()
    assert isinstance(rule, Agreement) and rule.reads_scores and made.notices() == ()
    assert (rule.prior, rule.scores) == fit_agreement(questions(), 0, budget=16)
    assert rule.scores is not None and rule.scores.of_answers > 0.5
    scores = np.concatenate([one.scores[0] for one in questions()])
    assert (made.mean, made.std) == pytest.approx((scores.mean(), scores.std()), rel=0.01)
    again = fit(questions(), MEASURES)
    assert made.model_dump(exclude={"created_at"}) == again.model_dump(exclude={"created_at"})
    assert (short.guarantee, short.p_correct, short.rule()) == (None, None, rule)
    assert re.findall(r"\d+", made.guarantee or "") == ["64"]


@pytest.mark.full
def test_scores_stop_sampling_earlier_than_counts_with_the_same_answers() -> None:
    given = questions(200)
    scored, counted = fit(given, MEASURES), fit([replace(one, scores=one.scores[:0]) for one in given])
    rng, samples, right = np.random.default_rng(5), [], []
    for likely in rng.uniform(0.4, 1.0, 300):
        good = rng.random(16) < likely
        answers, scores = np.where(good, 0, rng.integers(1, 5, 16)), 2.5 * good + rng.normal(size=16)
        drawn = [Response(str(a), s) for a, s in zip(answers.tolist(), scores.tolist(), strict=True)]
        decisions = [decide(one.rule() | Cap(16), drawn) for one in (scored, counted)]
        samples.append([decision.samples for decision in decisions])
        right.append([decision.answer == "0" for decision in decisions])
    fewer, more = np.mean(samples, axis=0)
    assert fewer < 0.8 * more
    by_scores, by_counts = np.mean(right, axis=0)
    assert by_scores > by_counts - 0.02


@pytest.mark.parametrize(
    ("measures", "missing", "read"),
    [
        ([*READ_SCORES], (), READ_SCORES[0]),
        ([*READ_SCORES[::-1]], (), READ_SCORES[0]),
        ([*READ_SCORES], (0,), READ_SCORES[1]),
        ([MEASURES[0], READ_SCORES[1]], (), READ_SCORES[1]),
        ([MEASURES[0], READ_SCORES[1]], (1,), MEASURES[0]),
        (MEASURES, (), MEASURES[0]),
        (MEASURES, (0,), MEASURES[1]),
        (MEASURES, (0, 1), None),
    ],
)
def test_the_first_measure_that_responses_have_is_read(
    measures: list[Measure], missing: tuple[int, ...], read: Measure | None
) -> None:
    given = questions(20)
    for one in given:
        one.scores[[*missing]] = np.nan
    made = fit(given, measures, explained=False)
    assert made.measure == read and (made.untrusted is None) == (read is not None)
    assert made.rule().reads_scores == (read is not None)


@pytest.mark.parametrize(
    "given", [[unscored(0, 0, 1, 0)] * 8, [unscored(0, 0, 0, 0)] * 8, [unscored(0, None), unscored(0, 0)]]
)
def test_without_scores_answers_are_learned_from(given: list[Observation]) -> None:
    made = fit(given)
    assert (made.measure, made.untrusted) == (None, "there are no scores")
    assert decide(made.rule() | Cap(16), [Response("a")] * 16).answer == "a"


def test_at_temperature_0_one_response_comes_to_be_enough() -> None:
    same = [Observation((0,) * 4, np.full((2, 4), 1.0)) for _ in range(200)]
    made = fit(same, MEASURES)
    assert made.measure is None and made.untrusted is not None and not made.rule().reads_scores
    assert decide(made.rule() | Cap(16), [Response("a")] * 16).samples <= 2


def test_responses_without_a_score_are_counts() -> None:
    given = questions()
    for at, one in enumerate(given):
        one.scores[0, at % 3 :: 3] = np.nan
    made = fit([*given, Observation((None, 0), np.full((2, 2), np.nan))], MEASURES)
    assert made.measure == MEASURES[0]
    assert made.rule()([Response("a"), Response("a", 1.0)]).agrees is not None


def test_what_hardly_differs_leaves_the_probabilities_finite() -> None:
    rng = np.random.default_rng(0)
    parted = [Observation((0, 0, 0, 1), np.array([[9.0, 9.5, 9.9, 1.0]]) + rng.normal(0, 0.1, 4)) for _ in range(64)]
    rule = fit(parted, MEASURES[:1]).rule()
    for scores in ([9.5, 1.0], [1.0, 9.5], [99.0, -99.0]):
        decision = rule([Response("a", scores[0]), Response("b", scores[1])])
        assert 0 < decision.posterior < 1 and 0 < (decision.agrees or 0) < 1


def differing(count: int, right: int = 0) -> list[Observation]:
    """Label so many questions to which the responses differ; scores are higher where the answer is 0."""
    given: list[Observation] = []
    for one in many(128):
        takes = count > 0 and {0, right} < {*one.answers}
        given += labelled([replace(one, scores=one.scores[:1])], int(takes), right)
        count -= takes
    return given


@pytest.mark.full
def test_labels_refuse_scores_that_they_refute() -> None:
    refuted, too_few, confirmed, plain = (
        fit(given, MEASURES[:1], explained=False)
        for given in (differing(20, right=1), differing(2, right=1), differing(20), differing(0))
    )
    assert refuted.measure is None and refuted.untrusted is not None
    assert refuted.rule() == Agreement(fit_prior([one.answers for one in many(128)]), DEFAULT_AGREEMENT)
    for made in (too_few, confirmed):
        assert (made.measure, made.untrusted, made.rule()) == (MEASURES[0], None, plain.rule())


@pytest.mark.parametrize("signal", ["good", "noise", "none"])
def test_a_file_decides_as_what_was_saved(signal: str, tmp_path: Path) -> None:
    if signal == "none":
        made = fit([replace(one, scores=one.scores[:0]) for one in questions()], budget=10)
    else:
        made = fit(questions(signal=signal), MEASURES, budget=10)
    read = load_calibration(save_calibration(made, tmp_path / "c.json"))
    assert read == made and read.rule() == made.rule() and read.rule().reads_scores == (signal != "none")
    for budget in (6, 16):
        for one in questions(20, seed=9):
            expected, found = (decide(c.rule(budget=budget), one.responses(0)) for c in (made, read))
            assert found == expected


@pytest.mark.parametrize(("known", "curve"), [(15, False), (16, True), (31, True), (32, True), (64, True)])
def test_labels_add_how_likely_answers_are_right_and_change_nothing_else(known: int, curve: bool) -> None:
    given = questions()
    made, plain = fit(labelled(given, known), MEASURES), fit(given, MEASURES)
    assert (made.p_correct is not None, plain.p_correct) == (curve, None)
    assert made.p_correct is None or made.p_correct.holds_for("agreement")
    assert (made.accuracy is not None, plain.accuracy) == (2 * known >= len(given), None)
    changed = {"created_at", "p_correct", "accuracy"}
    assert made.model_dump(exclude=changed) == plain.model_dump(exclude=changed)


@pytest.mark.parametrize("right", [True, False])
def test_labels_leave_the_rule_as_it_is(right: bool) -> None:
    """They say how likely an answer is right, and would make a rule that asks for more samples."""
    given = [replace(one, scores=one.scores[:0]) for one in questions(200)]
    told = [
        replace(one, right=tuple((answer == 0) == (right or number % 3 > 0) for answer in one.answers))
        for number, one in enumerate(given)
    ]
    plain, made = fit(given), fit(told)
    assert made.rule() == plain.rule() and plain.p_correct is None
    assert made.p_correct is not None and (made.p_correct.right > 0.9) == right


def test_outcomes_are_no_labels() -> None:
    """Somebody told them of some questions rather than others: ten of either kind are needed."""
    told = [replace(one, decided=4, answer=0, correct=True) for one in questions(200)]
    made = fit(told, MEASURES)
    assert (made.method, made.p_correct) == ("consensus", None)
    both = [replace(one, correct=at % 3 > 0) for at, one in enumerate(told)]
    assert fit(both, MEASURES).p_correct is not None


def test_the_papers_rule_is_made_if_it_is_asked_for() -> None:
    made = fit(labelled(questions(), 64), MEASURES, method="paper")
    assert (made.method, made.rule_, made.measure) == ("offline", None, MEASURES[0])
    assert [one.signal for one in made.rejected] == ["neg_entropy"]
    assert made.auroc is not None and made.auroc.value > 0.8 and made.accuracy is not None
    assert isinstance(made.rule(), ReASC) and isinstance(made.as_in_paper().rule(), ReASC)
    assert fit(labelled(questions(), 32), MEASURES, method="paper").n == 32


@pytest.mark.parametrize("known", [0, 31])
def test_the_papers_rule_needs_labels_and_scores(known: int) -> None:
    with pytest.raises(CalibrationDataError):
        fit(labelled(questions(), known), MEASURES, method="paper")
    without = [replace(one, scores=one.scores[:0]) for one in labelled(questions(), 64)]
    with pytest.raises(CalibrationDataError):
        fit(without, method="paper")
    with pytest.raises(CalibrationDataError):
        fit(questions(), MEASURES).as_in_paper()


@pytest.mark.parametrize(("known", "method"), [(64, "offline"), (32, "offline"), (31, "consensus"), (0, "consensus")])
def test_of_one_response_each_labels_make_the_papers_rule(known: int, method: str) -> None:
    given = [
        replace(one, answers=one.answers[:1], scores=one.scores[:, :1], right=one.right[:1])
        for one in labelled(questions(), known)
    ]
    made = fit(given, MEASURES)
    assert (made.method, made.by_agreement) == (method, method == "consensus")


def test_a_kind_of_request_has_its_own_scores_from_64_questions_on() -> None:
    whole = fit(questions(128), MEASURES)
    other = questions(64, seed=7)
    few, enough = (fit(other[:n], MEASURES, whole=whole) for n in (63, 64))
    assert whole.rule_ and few.rule_ and enough.rule_
    assert few.rule_.scores == whole.rule_.scores and few.rule_.threshold == whole.rule_.threshold
    assert enough.rule_.scores not in (None, whole.rule_.scores)
    towards = whole.rule_.agreement_prior
    fixed = whole.rule_.scores
    assert fixed is not None
    prior, _ = fit_agreement(other[:63], 0, budget=16, towards=towards, fixed=fixed.model())
    assert few.rule_.agreement_prior == prior
    prior, _ = fit_agreement(other, 0, budget=16, towards=towards)
    assert enough.rule_.agreement_prior == prior


def test_budget_and_threshold_are_those_given() -> None:
    for given, measures, default in (
        ([unscored(0, 0, 0, 0)] * 8, [], DEFAULT_AGREEMENT),
        (questions(), MEASURES, SCORED_AGREEMENT),
    ):
        for threshold, expected in ((0.9, 0.9), (None, default)):
            made = fit(given, measures, threshold=threshold)
            agreement = made.rule(budget=7)
            assert isinstance(agreement, Agreement) and (agreement.threshold, agreement.budget) == (expected, 7)
            assert Calibration.model_validate_json(made.model_dump_json()).rule() == made.rule()


def test_rows_of_a_larger_budget_are_learned_from() -> None:
    """P(correct) reads all responses, of which there are more than twice the budget."""
    made = fit(labelled([Observation((0,) * 12, np.arange(12.0)[None])] * 20, 20), MEASURES[:1], budget=4)
    assert made.p_correct is not None and made.p_correct.right == 1.0


@pytest.mark.parametrize(
    ("given", "measures", "message"),
    [
        ([unscored(0), unscored(None), unscored()], [], "1 of 3 questions"),
        ([unscored(0, 0)] * 2, MEASURES, r"shape \(0, 2\)"),
        ([], [], "no question"),
    ],
)
def test_what_cannot_be_learned_from(given: list[Observation], measures: Sequence[Measure], message: str) -> None:
    with pytest.raises(CalibrationDataError, match=message):
        fit(given, measures=measures)
    assert fit([unscored(0, 0), unscored(0, 1), unscored(None)]).n == 2  # which is enough
