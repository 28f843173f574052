"""Calibration without labels: what is taken to be right, which signals are trusted, and what is recorded."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import beta

from langchain_reasc.calibration import (
    Calibration,
    Observed,
    agrees_with_majority,
    calibrate_consensus,
    fit_prior,
    load_calibration,
    save_calibration,
)
from langchain_reasc.exceptions import CalibrationDataError
from langchain_reasc.method.agreement import Agreement, Component, Prior
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import ASC, Cap, Response, decide

MEASURES = [Measure("top_k", "mean"), Measure("neg_entropy", "mean")]
Scores = npt.NDArray[np.float64]


def questions(
    n: int = 64, *, signal: str = "good", seed: int = 0, wrong: int = 4, labelled: Sequence[int] = ()
) -> list[Observed]:
    """Questions as ASC leaves them, with a second measure that is noise.

    Args:
        n: how many.
        signal: what the first measure tells: good, noise, between (of questions only), or inverted.
        seed: of it all.
        wrong: wrong answers to choose from.
        labelled: questions whose labels say the opposite of what the first measure does.
    """
    rng, made = np.random.default_rng(seed), []
    for number in range(n):
        likely = rng.uniform(0.4, 1.0)
        right = rng.random(16) < likely
        answers = np.where(right, 0, rng.integers(1, 1 + wrong, 16)).tolist()
        used = decide(ASC() | Cap(16), [Response(str(answer)) for answer in answers]).samples
        tells = {"good": 2.5 * right, "inverted": -2.5 * right, "between": 6 * likely, "noise": 0.0}[signal]
        scores = np.stack([tells + rng.normal(size=16), rng.normal(size=16)])
        told = tuple((~right[:used]).tolist()) if number in labelled else ()
        made.append(Observed(tuple(answers[:used]), scores[:, :used], told))
    return made


def unscored(*answers: int | None) -> Observed:
    return Observed(answers, np.zeros((0, len(answers))))


def test_a_response_is_judged_by_the_others() -> None:
    assert agrees_with_majority((0, 0, 1, 0)) == [True, True, False, True]
    assert agrees_with_majority((0, 1)) == [False, False]  # each other's majority of one
    assert agrees_with_majority((0, 0, 1, 1)) == [False] * 4  # of the three others two say otherwise
    assert agrees_with_majority((0, 0, 1, 1, 2)) == [False, False, False, False, False]
    assert agrees_with_majority((0, 0, 0, 1, 1)) == [None] * 3 + [False] * 2  # of the four others two say so
    assert agrees_with_majority((0, None, 0, None)) == [True, None, True, None]
    assert agrees_with_majority((0,)) == agrees_with_majority((None,)) == [None] and agrees_with_majority(()) == []


def test_labels_come_before_consensus() -> None:
    one = Observed((0, 0, 1, None), np.zeros((0, 4)), (False, None, True, True))
    assert one.labelled == [False, None, True, None]  # a response without an answer is none
    assert one.judged == [False, None, True, None] and unscored(0, 0, 1, None).judged == [None, None, False, None]


def alternatives(given: list[Observed]) -> float:
    """What is recorded of how many wrong answers there are to choose from, with scores that separate well."""
    rng, scored = np.random.default_rng(0), []
    for one in given:
        good = [
            answer == 0 if known is None else known for answer, known in zip(one.answers, one.labelled, strict=True)
        ]
        scores = 5.0 * np.array(good) + rng.normal(size=len(good))
        scored.append(Observed(one.answers, scores[None], one.right))
    block = calibrate_consensus(scored, measures=MEASURES[:1], explained=False).rule_
    assert block is not None
    return float(block.parameters["alternatives"] or 0)


def test_wrong_answers_are_as_many_as_seldom_agree() -> None:
    assert alternatives([unscored(0, 0, 0, 0, 1, 1)] * 20) == 1.0  # one pair a question
    apart = [unscored(0, 0, 0, 0, 1, 2)]
    assert alternatives(apart * 8) == (8 + 4) / 4 and alternatives(apart * 80) == 5.0
    labelled = Observed((0, 0, 1, 1, 2), np.zeros((0, 5)), (False, False, True, True, None))
    assert alternatives([labelled] * 20) == (60 + 4) / (20 + 4)  # 0, 0 and 2 are wrong


def test_a_good_signal_is_trusted() -> None:
    made = calibrate_consensus(questions(), measures=MEASURES)
    assert (made.measure, made.untrusted, made.method, made.n) == (MEASURES[0], None, "consensus", 64)
    assert made.within and made.within.low > 0.7
    assert [one.signal for one in made.rejected] == ["neg_entropy"]
    rule = made.rule()
    assert isinstance(rule, Agreement) and rule.reads_scores
    assert made.notices() == ()
    assert "votes weigh by top_k/mean, AUROC within a question 0." in made.summary()


@pytest.mark.parametrize("signal", ["noise", "between", "inverted"])
def test_nothing_else_is(signal: str) -> None:
    """Of 80 seeded runs on 32 questions none trusts a signal that says nothing within a question, or the opposite."""
    runs = (
        calibrate_consensus(_fewer(signal, seed), measures=MEASURES, seed=seed, explained=False) for seed in range(80)
    )
    trusted = [made.measure for made in runs]
    assert trusted == [None] * 80


def _fewer(signal: str, seed: int) -> list[Observed]:
    """32 of 400 questions, drawn again: quicker than to draw their answers anew."""
    at = np.random.default_rng(seed).permutation(400)[:32]
    return [_many(signal)[one] for one in at.tolist()]


@cache
def _many(signal: str) -> list[Observed]:
    return questions(400, signal=signal)


def test_without_a_trusted_measure_votes_are_counted_and_it_says_why() -> None:
    made = calibrate_consensus(questions(signal="noise"), measures=MEASURES)
    assert made.measure is None and not made.rule().reads_scores
    (notice,) = made.notices()
    assert notice.startswith("votes are counted, not weighed: ") and "within a question with an AUROC of" in notice
    assert made.summary() == f"consensus on 64 questions: {notice}"


@pytest.mark.parametrize(
    "given", [[unscored(0, 0, 1, 0)] * 8, [unscored(0, 0, 0, 0)] * 8, [unscored(0, None), unscored(0, 0)]]
)
def test_without_scores_answers_are_learned_from(given: list[Observed]) -> None:
    made = calibrate_consensus(given)
    assert (made.measure, made.untrusted) == (None, "there are no scores")
    assert decide(made.rule() | Cap(16), [Response("a")] * 16).answer == "a"


def scored(answers: tuple[int | None, ...], n: int) -> list[Observed]:
    rng = np.random.default_rng(0)
    return [Observed(answers, rng.normal(size=(2, len(answers)))) for _ in range(n)]


@pytest.mark.parametrize(
    ("answers", "n", "why"),
    [
        ((0, 0, 0, 0), 40, "all responses agree"),
        ((0, 1, 2, 3), 40, "all responses agree, or none do"),
        ((0, 0, 1, 0), 5, "only 5 questions have answers that differ"),
    ],
)
def test_where_nothing_can_be_told_apart_no_measure_is_trusted(
    answers: tuple[int | None, ...], n: int, why: str
) -> None:
    made = calibrate_consensus(scored(answers, n), measures=MEASURES)
    assert made.measure is None and made.untrusted and made.untrusted.startswith(why)


def test_at_temperature_0_one_response_comes_to_be_enough() -> None:
    same = [Observed((0,) * 4, np.full((2, 4), 1.0)) for _ in range(200)]
    made = calibrate_consensus(same, measures=MEASURES)
    assert made.untrusted == "no measure has a score of every response"
    assert decide(made.rule() | Cap(16), [Response("a")] * 16).samples <= 2


def test_a_measure_that_misses_a_response_is_no_candidate() -> None:
    given = questions()
    given[3].scores[0, 0] = np.nan
    made = calibrate_consensus(given, measures=MEASURES)
    assert made.measure is None and made.untrusted and made.untrusted.startswith("neg_entropy/mean tells")
    other = questions()
    other[3].scores[1, :] = np.nan
    assert calibrate_consensus(other, measures=MEASURES).measure == MEASURES[0]


def test_a_score_may_be_missing_where_no_one_judges_the_response() -> None:
    given = [*questions(), Observed((None, 0), np.array([[np.nan, np.nan]] * 2))]
    given.append(Observed((0, 0, 0, 1, 1), np.array([[np.nan, 1.0, 1.0, 0.0, 0.0]] * 2)))  # a tie among the others
    made = calibrate_consensus(given, measures=MEASURES)
    assert made.guarantee


def test_separated_classes_leave_the_odds_finite() -> None:
    rng = np.random.default_rng(0)
    parted = [Observed((0, 0, 0, 1), np.array([[9.0, 9.5, 9.9, 1.0]]) + rng.normal(0, 0.1, 4)) for _ in range(64)]
    made = calibrate_consensus(parted, measures=MEASURES[:1])
    assert made.rule_ and all(1 / 300 < known.p < 1 - 1 / 300 for known in made.rule_.odds)


def test_five_labelled_questions_refuse_a_measure_that_they_refute() -> None:
    having_both = [at for at, one in enumerate(questions(128)) if len(set(one.answers)) > 1]
    made = calibrate_consensus(questions(128, labelled=having_both[:5]), measures=MEASURES)
    assert made.measure is None and made.untrusted
    refuted = [Observed(one.answers, one.scores[:1], one.right) for one in questions(128, labelled=having_both[:5])]
    only = calibrate_consensus(refuted, measures=MEASURES[:1])
    assert only.untrusted == "no measure tells right responses from wrong ones where labels are known"
    few = calibrate_consensus(questions(128, labelled=having_both[:4]), measures=MEASURES)
    assert few.measure == MEASURES[0]


def test_the_same_questions_make_the_same_calibration() -> None:
    made, again = (calibrate_consensus(questions(), measures=MEASURES) for _ in range(2))
    assert made.model_dump(exclude={"created_at"}) == again.model_dump(exclude={"created_at"})


@pytest.mark.parametrize("signal", ["good", "noise"])
def test_a_file_decides_as_what_was_saved(signal: str, tmp_path: Path) -> None:
    made = calibrate_consensus(questions(signal=signal), measures=MEASURES, budget=10)
    read = load_calibration(save_calibration(made, tmp_path / "c.json"))
    assert read == made and (read.guarantee, read.p_agree) == (made.guarantee, made.p_agree)
    for budget in (6, 16):
        for one in questions(40, seed=9):
            expected, found = (decide(c.rule(budget=budget), one.responses(0)) for c in (made, read))
            assert found == expected


def test_it_tells_how_likely_further_responses_agree() -> None:
    made = calibrate_consensus(questions(200), measures=MEASURES).p_agree
    assert made and (made.holds_for("agreement"), made.holds_for("asc")) == (True, False)
    assert made.probability(0.5) < made.probability(0.9) <= 1
    assert calibrate_consensus(questions(12), measures=MEASURES).p_agree is None  # too few
    assert calibrate_consensus([unscored(0, 0)] * 40).p_agree is None  # too short
    cut = [Observed(one.answers, one.scores, counted=False) for one in questions(200)]
    assert calibrate_consensus(cut, measures=MEASURES).p_agree is None


def test_the_budget_and_the_threshold_are_those_given() -> None:
    made = calibrate_consensus([unscored(0, 0, 0, 0)] * 8, threshold=0.9)
    rule = made.rule(budget=7)
    assert isinstance(rule, Agreement) and (rule.threshold, rule.budget) == (0.9, 7)


def test_two_questions_are_enough_and_one_is_not() -> None:
    assert calibrate_consensus([unscored(0, 0), unscored(0, 1), unscored(None)]).n == 2
    for given in ([], [unscored(0, 0)], [unscored(0), unscored(None), unscored()]):
        with pytest.raises(CalibrationDataError, match="questions have an answer"):
            calibrate_consensus(given)


def test_scores_of_other_measures_are_refused() -> None:
    with pytest.raises(CalibrationDataError, match=r"scores of shape \(0, 2\) for 2 measures of 2 responses"):
        calibrate_consensus([unscored(0, 0)] * 2, measures=MEASURES)


def test_a_fallback_counts_votes_and_says_so() -> None:
    made: Calibration = calibrate_consensus(questions(), measures=MEASURES).model_copy(update={"fallback": "why"})
    assert isinstance(made.rule(), ASC) and made.notices() == ("counting votes (ASC): why",)
    assert made.summary().endswith("; votes are counted (ASC): why")


def test_what_no_decision_needs_may_be_left_out() -> None:
    made, short = (calibrate_consensus(questions(), measures=MEASURES, explained=flag) for flag in (True, False))
    assert (short.auroc, short.guarantee, short.p_agree) == (None, None, None)
    assert short.rule() == made.rule() and made.auroc


def test_agreement_is_kept_under_its_own_name() -> None:
    held = json.loads(calibrate_consensus(questions(200), measures=MEASURES).model_dump_json(by_alias=True))
    assert held["p_agree"]["n"] > 0 and held["p_correct"] is None
    assert "correctness" not in held


AGREED, SPLIT = unscored(0, 0, 0, 0), unscored(0, 1, 1, 0)
TURNED = unscored(0, 1, 1, 1, 1, 1, 1)  # which one response decides otherwise than all do
CUT = Observed((0, 0), np.zeros((0, 2)), counted=False)


def test_what_is_promised_keeps_sufficient_votes_apart_from_split_ones() -> None:
    made = calibrate_consensus([AGREED] * 290 + [TURNED] * 10 + [SPLIT] * 3, threshold=0.6)
    assert decide(made.rule(), TURNED.responses(None)).answer == "0", "the case this is about"
    bound = beta.ppf(0.95, 11, 290)  # of Clopper and Pearson, for 10 of 300
    assert made.guarantee == (
        "learned from 303 questions without labels; of 300 on which counted votes are sufficient 10 would be answered "
        f"otherwise, so at most {bound:.1%} of such questions are (95 %); of 3 on which votes are split to the end, "
        "0 would; agreement is not correctness"
    )


@pytest.mark.parametrize(
    ("given", "holds", "lacks"),
    [
        (
            [AGREED, TURNED],
            ["of 2 on which counted votes are sufficient", f"at most {1 - 0.05 ** (1 / 2):.1%}"],
            "split",
        ),
        ([CUT, CUT], ["learned from 2 questions without labels; agreement is not correctness"], "sufficient"),
        ([CUT, SPLIT], ["of 1 on which votes are split"], "sufficient"),
        ([unscored(None, 0, 0, 0, 0)] * 2, ["0 would"], "split"),
    ],
)
def test_what_is_promised_of_few_questions(given: list[Observed], holds: list[str], lacks: str) -> None:
    said = calibrate_consensus(given).guarantee or ""
    assert all(part in said for part in holds) and lacks not in said


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
    for question in range(600):
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
    few = fit_prior([[0] * 4] * 4)
    assert min(few.weights) > 0 and sum(few.weights) == pytest.approx(1.0)
    assert min(few.weights) >= 8 / len(few.weights) / (4 + 8) * (1 - 1e-9)  # as much as 8 questions of any kind
    many = fit_prior([[0] * 4] * 400)
    assert Prior.uniform().leader_stays([1], 16) < few.leader_stays([1], 16) < many.leader_stays([1], 16)


def test_answers_that_all_differ_promise_no_agreement() -> None:
    assert fit_prior([[0, 1, 2, 3]] * 50).leader_stays([1], 16) < Prior.uniform().leader_stays([1], 16)
