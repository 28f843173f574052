"""``fit``, with labels and without: what is taken to be right, which signals are trusted, and what is recorded."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import beta

from langchain_reasc.calibration import (
    Calibration,
    Observation,
    agrees_with_majority,
    fit,
    fit_prior,
    load_calibration,
    save_calibration,
)
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.agreement import Agreement, Component, Prior
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


@pytest.mark.parametrize(
    ("answers", "agrees"),
    [
        ((0, 0, 1, 0), [True, True, False, True]),
        ((0, 1), [False, False]),  # each other's majority of one
        ((0, 0, 1, 1), [False] * 4),  # of the three others two say otherwise
        ((0, 0, 0, 1, 1), [None] * 3 + [False] * 2),  # of the four others two say so
        ((0, None, 0, None), [True, None, True, None]),
        ((0,), [None]),
    ],
)
def test_a_response_is_judged_by_the_others(answers: tuple[int | None, ...], agrees: list[bool | None]) -> None:
    assert agrees_with_majority(answers) == agrees


@pytest.mark.parametrize(
    ("given", "alternatives"),
    [
        ([unscored(0, 0, 0, 0, 1, 1)] * 20, 1.0),  # one pair a question
        ([unscored(0, 0, 0, 0, 1, 2)] * 8, (8 + 4) / 4),
        ([unscored(0, 0, 0, 0, 1, 2)] * 80, 5.0),
    ],
)
def test_wrong_answers_are_as_many_as_seldom_agree(given: list[Observation], alternatives: float) -> None:
    rng, scored = np.random.default_rng(0), []
    for one in given:
        good = np.array([answer == 0 for answer in one.answers])
        scored.append(Observation(one.answers, (5.0 * good + rng.normal(size=good.size))[None]))
    block = fit(scored, measures=MEASURES[:1], explained=False).rule_
    assert block is not None and block.parameters["alternatives"] == alternatives


def test_a_good_signal_is_trusted() -> None:
    made, short = (fit(questions(), measures=MEASURES, explained=flag) for flag in (True, False))
    assert (made.measure, made.untrusted, made.method, made.n) == (MEASURES[0], None, "consensus", 64)
    assert made.within and made.within.low > 0.7 and made.auroc
    assert [one.signal for one in made.rejected] == ["neg_entropy"]
    rule = made.rule()
    assert isinstance(rule, Agreement) and rule.reads_scores and made.notices() == ()
    again = fit(questions(), measures=MEASURES)
    assert made.model_dump(exclude={"created_at"}) == again.model_dump(exclude={"created_at"})
    assert (short.auroc, short.guarantee, short.p_agree, short.rule()) == (None, None, None, rule)


@pytest.mark.full
@pytest.mark.parametrize("signal", ["noise", "between", "inverted"])
def test_nothing_else_is(signal: str) -> None:
    """Of 40 seeded runs on 32 questions none trusts a signal that says nothing within a question, or the opposite."""
    for seed in range(40):
        drawn = [many(400, signal)[one] for one in np.random.default_rng(seed).permutation(400)[:32].tolist()]
        assert fit(drawn, measures=MEASURES, seed=seed, explained=False).measure is None


def test_without_a_trusted_measure_votes_are_counted_and_it_says_why() -> None:
    made = fit(questions(signal="noise"), measures=MEASURES)
    assert made.measure is None and not made.rule().reads_scores
    (notice,) = made.notices()
    assert "AUROC" in notice


@pytest.mark.parametrize(
    "given", [[unscored(0, 0, 1, 0)] * 8, [unscored(0, 0, 0, 0)] * 8, [unscored(0, None), unscored(0, 0)]]
)
def test_without_scores_answers_are_learned_from(given: list[Observation]) -> None:
    made = fit(given)
    assert (made.measure, made.untrusted) == (None, "there are no scores")
    assert decide(made.rule() | Cap(16), [Response("a")] * 16).answer == "a"


@pytest.mark.parametrize(
    ("answers", "n", "why"),
    [
        ((0, 0, 0, 0), 40, "all responses agree"),
        ((0, 1, 2, 3), 40, "all responses agree, or none do"),
        ((0, 0, 1, 0), 5, "only 5 questions"),
    ],
)
def test_where_nothing_can_be_told_apart_no_measure_is_trusted(
    answers: tuple[int | None, ...], n: int, why: str
) -> None:
    rng = np.random.default_rng(0)
    made = fit([Observation(answers, rng.normal(size=(2, 4))) for _ in range(n)], measures=MEASURES)
    assert made.measure is None and (made.untrusted or "").startswith(why)


def test_at_temperature_0_one_response_comes_to_be_enough() -> None:
    same = [Observation((0,) * 4, np.full((2, 4), 1.0)) for _ in range(200)]
    made = fit(same, measures=MEASURES)
    assert made.untrusted == "no measure has a score of every response"
    assert decide(made.rule() | Cap(16), [Response("a")] * 16).samples <= 2


def test_a_measure_that_misses_a_response_that_is_judged_is_no_candidate() -> None:
    for missing, measure in ((0, None), (1, MEASURES[0])):
        given = questions()
        given[3].scores[missing, 0] = np.nan
        assert fit(given, measures=MEASURES, explained=False).measure == measure
    tie = Observation((0, 0, 0, 1, 1), np.array([[np.nan, 1.0, 1.0, 0.0, 0.0]] * 2))  # among the others of the first
    given = [*questions(), Observation((None, 0), np.array([[np.nan, np.nan]] * 2)), tie]
    assert fit(given, measures=MEASURES).measure == MEASURES[0]


def test_responses_without_any_score_are_left_out_of_judging_measures() -> None:
    given = questions()
    for one in given[::4]:
        one.scores[:, 0] = np.nan
    assert fit(given, measures=MEASURES, explained=False).measure == MEASURES[0]


def test_separated_classes_leave_the_odds_finite() -> None:
    rng = np.random.default_rng(0)
    parted = [Observation((0, 0, 0, 1), np.array([[9.0, 9.5, 9.9, 1.0]]) + rng.normal(0, 0.1, 4)) for _ in range(64)]
    made = fit(parted, measures=MEASURES[:1])
    assert made.rule_ and all(1 / 300 < known.p < 1 - 1 / 300 for known in made.rule_.odds)


def test_five_labelled_questions_refuse_a_measure_that_they_refute() -> None:
    """Labels that say the opposite of what the first measure does."""

    def labelled(count: int, measures: int) -> Calibration:
        differing = [at for at, one in enumerate(many(128)) if len(set(one.answers)) > 1][:count]
        given = [
            Observation(
                one.answers, one.scores[:measures], tuple(a != 0 for a in one.answers) if at in differing else ()
            )
            for at, one in enumerate(many(128))
        ]
        return fit(given, measures=MEASURES[:measures], explained=False)

    assert labelled(5, 2).measure is None
    assert labelled(5, 1).untrusted == "no measure tells right responses from wrong ones where labels are known"
    assert labelled(4, 2).measure == MEASURES[0]


@pytest.mark.parametrize("signal", ["good", "noise"])
def test_a_file_decides_as_what_was_saved(signal: str, tmp_path: Path) -> None:
    made = fit(questions(signal=signal), measures=MEASURES, budget=10)
    read = load_calibration(save_calibration(made, tmp_path / "c.json"))
    assert read == made
    for budget in (6, 16):
        for one in questions(20, seed=9):
            expected, found = (decide(c.rule(budget=budget), one.responses(0)) for c in (made, read))
            assert found == expected


def test_it_tells_how_likely_further_responses_agree() -> None:
    made = fit(questions(200), measures=MEASURES)
    curve = made.p_agree
    assert curve and (curve.holds_for("agreement"), curve.holds_for("asc"), made.p_correct) == (True, False, None)
    assert curve.probability(0.5) < curve.probability(0.9) <= 1
    cut = [Observation(one.answers, one.scores, counted=False) for one in questions(200)]
    for given, measures in ((questions(12), MEASURES), ([unscored(0, 0)] * 40, []), (cut, MEASURES)):
        assert fit(given, measures=measures).p_agree is None  # too few, too short, cut short


@pytest.mark.parametrize(
    ("known", "method", "curve"),
    [(15, "consensus", False), (16, "consensus", True), (31, "consensus", True), (32, "offline", True)],
)
def test_what_labels_add(known: int, method: str, curve: bool) -> None:
    """Sixteen add P(correct); those of half of the questions also a gate and Algorithm 1, on the same measure."""
    given = questions()
    labelled = [
        replace(one, right=tuple(answer == 0 for answer in one.answers)) if at < known else one
        for at, one in enumerate(given)
    ]
    made = fit(labelled, measures=MEASURES)
    assert (made.method, made.p_correct is not None, made.measure) == (method, curve, MEASURES[0])
    assert made.rule_ == fit(given, measures=MEASURES).rule_ and made.by_agreement
    assert (made.gate.level is not None) == (made.accuracy is not None) == (method == "offline")
    if method == "offline":
        assert isinstance(made.as_in_paper().rule(), ReASC)
    else:
        with pytest.raises(CalibrationDataError, match="paper"):
            made.as_in_paper()


def test_outcomes_are_no_labels() -> None:
    """Somebody told them of some questions rather than others: they set no gate, and ten of either kind are needed."""
    told = [replace(one, decided=4, answer=0, correct=True) for one in questions(200)]
    made = fit(told, measures=MEASURES)
    assert (made.method, made.p_correct) == ("consensus", None)


@pytest.mark.full
@pytest.mark.parametrize("right", [True, False])
def test_labels_leave_the_rule_as_it_is(right: bool) -> None:
    """They say how likely an answer is right, and would make a rule that asks for more samples."""
    given = [replace(one, scores=one.scores[:0]) for one in questions(200)]
    labelled = [
        replace(one, right=tuple((answer == 0) == (right or number % 3 > 0) for answer in one.answers))
        for number, one in enumerate(given)
    ]
    plain, made = fit(given), fit(labelled)
    assert made.rule() == plain.rule() and plain.p_correct is None
    assert made.p_correct is not None and (made.p_correct.right > 0.9) == right


def test_budget_and_threshold_are_those_given() -> None:
    made = fit([unscored(0, 0, 0, 0)] * 8, threshold=0.9)
    agreement = made.rule(budget=7)
    assert isinstance(agreement, Agreement) and (agreement.threshold, agreement.budget) == (0.9, 7)
    assert Calibration.model_validate_json(made.model_dump_json()).rule() == made.rule()


def test_a_file_of_before_loads_without_the_stop_that_went() -> None:
    made = fit([unscored(0, 0, 0, 0)] * 8)
    stored = made.model_dump(mode="json")
    stored["rule"]["parameters"]["worth"] = 10.0
    loaded = Calibration.model_validate(stored)
    assert loaded.rule() == made.rule() and loaded.model_dump(mode="json") == made.model_dump(mode="json")


@pytest.mark.parametrize(
    ("given", "measures", "message"),
    [
        ([unscored(0), unscored(None), unscored()], [], "1 of 3 questions"),
        ([unscored(0, 0)] * 2, MEASURES, r"shape \(0, 2\)"),
    ],
)
def test_what_cannot_be_learned_from(given: list[Observation], measures: Sequence[Measure], message: str) -> None:
    with pytest.raises(CalibrationDataError, match=message):
        fit(given, measures=measures)
    assert fit([unscored(0, 0), unscored(0, 1), unscored(None)]).n == 2  # which is enough


AGREED, SPLIT = unscored(0, 0, 0, 0), unscored(0, 1, 1, 0)
TURNED = unscored(0, 1, 1, 1, 1, 1, 1)  # which one response decides otherwise than all do
CUT = Observation((0, 0), np.zeros((0, 2)), counted=False)


def test_what_is_promised_keeps_sufficient_votes_apart_from_split_ones() -> None:
    made = fit([AGREED] * 290 + [TURNED] * 10 + [SPLIT] * 3, threshold=0.6)
    assert decide(made.rule(), TURNED.responses(None)).answer == "0", "the case this is about"
    bound = beta.ppf(0.95, 11, 290)  # of Clopper and Pearson, for 10 of 300
    assert re.findall(r"\d[\d.]*%?", made.guarantee) == ["303", "300", "10", f"{bound:.1%}", "95", "3", "0"]


@pytest.mark.full
def test_what_is_promised_counts_questions_on_which_the_rule_goes_on() -> None:
    """Of two answers that are nearly even, four equal votes are sufficient for counting, and not for the rule."""
    rng = np.random.default_rng(0)
    drawn = [rng.random(16) < share for share in rng.beta(12, 8, 3000)]
    used = [decide(ASC() | Cap(16), [Response(str(one)) for one in each]) for each in drawn]
    seen = [unscored(*each[: one.samples].astype(int).tolist()) for each, one in zip(drawn, used, strict=True)]
    made = fit(seen[:512])
    told = re.search(
        r" (\d+) would .*, and ([\d.]+) of (\d+) on which it goes on.* at most ([\d.]+)%", made.guarantee or ""
    )
    assert told is not None
    differing, expected, going_on, high = map(float, told.groups())
    rule, fresh = made.rule() | Cap(16), range(512, 3000)
    otherwise = [
        decide(rule, [Response(str(int(one))) for one in drawn[at]]).answer != str(int(used[at].answer == "True"))
        for at in fresh
        if used[at].reason == "evidence"
    ]
    assert going_on > 50 and 0 < 100 * np.mean(otherwise) < high < 5
    assert differing == 0 < expected < going_on / 10


@pytest.mark.parametrize(
    ("given", "holds", "lacks"),
    [
        ([AGREED, TURNED], "of 2 on which", "split"),
        ([CUT, CUT], "2 questions by agreement", "sufficient"),
        ([CUT, SPLIT], "of 1 on which", "sufficient"),
        ([unscored(None, 0, 0, 0, 0)] * 2, "0 would", "split"),
    ],
)
def test_what_is_promised_of_few_questions(given: list[Observation], holds: str, lacks: str) -> None:
    guarantee = fit(given).guarantee or ""
    assert holds in guarantee and lacks not in guarantee


def drawn(component: Component, responses: int, rng: np.random.Generator) -> list[int]:
    answers: list[int] = []
    for n in range(responses):
        counts = np.bincount(answers) if answers else np.zeros(0)
        chances = [*(counts - component.discount), component.concentration + len(counts) * component.discount]
        answers.append(int(rng.choice(len(chances), p=np.maximum(chances, 0) / (n + component.concentration))))
    return answers


@pytest.mark.parametrize("threshold", [None, 0.95])
def test_a_mixture_is_found_again_by_what_it_predicts(threshold: float | None) -> None:
    """From whole questions and from those that ASC cut short, which say the same of what comes next."""
    easy, hard, rng = Component(0.0, 0.1), Component(0.3, 10.0), np.random.default_rng(1)
    seen = []
    for question in range(400):
        answers = drawn(easy if question % 2 else hard, 16, rng)
        if threshold is not None:
            answers = answers[: decide(ASC(threshold) | Cap(16), [Response(str(one)) for one in answers]).samples]
        seen.append(answers)
    found, true = fit_prior(seen), Prior((easy, hard), (0.5, 0.5))
    for counts in ([1], [2], [1, 1], [3, 1], [4]):
        assert found.leader_stays(counts, 16) == pytest.approx(true.leader_stays(counts, 16), abs=0.06)


def test_a_few_questions_rule_nothing_out() -> None:
    assert fit_prior([]) == fit_prior([[]])
    assert fit_prior([]).weights == pytest.approx(Prior.uniform().weights)
    few, many = fit_prior([[0] * 4] * 4), fit_prior([[0] * 4] * 400)
    assert sum(few.weights) == pytest.approx(1.0)
    assert min(few.weights) >= 8 / len(few.weights) / (4 + 8) * (1 - 1e-9)  # as much as 8 questions of any kind
    apart = fit_prior([[0, 1, 2, 3]] * 50)
    stays = [prior.leader_stays([1], 16) for prior in (apart, Prior.uniform(), few, many)]
    assert stays == sorted(stays)
