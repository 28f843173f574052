"""The drift monitor: how rarely it errs, how soon it tells, and what it is fed with."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from method.by_hand import SCORES

from langchain_reasc.calibration import DriftMonitor, Expected, Prediction, mean_separation, responses_of, separation
from langchain_reasc.method import ASC, Agreement, Component, Prior, Response, StoppingRule


def observations_to_alarm(predicted: float, agreed: np.typing.NDArray[np.bool_], monitor: DriftMonitor) -> int:
    """Observations up to the first alarm; beyond all of them where there is none."""
    alarms = (at for at, one in enumerate(agreed, 1) if monitor.observe(predicted, bool(one)))
    return next(alarms, len(agreed) + 1)


@pytest.mark.full
@pytest.mark.parametrize(("predicted", "off"), [(0.6, -0.05), (0.8, 0.05), (0.95, 0.05), (0.8, 0.0)])
def test_false_alarms_are_as_rare_as_it_says(predicted: float, off: float) -> None:
    streams, length = 400, 100
    agreed = np.random.default_rng(0).random((streams, length)) < predicted + off
    alarms = sum(observations_to_alarm(predicted, one, DriftMonitor()) <= length for one in agreed)
    assert alarms / streams <= (length / 5000 if off else 0.005)


@pytest.mark.parametrize(
    ("predicted", "change", "within"), [(0.95, -0.3, 80), (0.8, -0.2, 200), (0.6, -0.1, 1000), (0.6, 0.3, 80)]
)
def test_a_change_is_noticed_soon(predicted: float, change: float, within: int) -> None:
    rng, delays = np.random.default_rng(1), []
    for _ in range(20):
        monitor = DriftMonitor()
        before = observations_to_alarm(predicted, rng.random(200) < predicted, monitor)
        after = rng.random(3 * within) < predicted + change
        delays.append(observations_to_alarm(predicted, after, monitor) if before > 200 else 0)
    assert np.median(delays) <= within


def test_outcomes_between_0_and_1_are_compared_by_their_mean() -> None:
    rng, length = np.random.default_rng(2), 100
    streams = rng.beta(3, 1, (400, length))  # of mean .75, predicted .8

    def alarms(outcomes: np.typing.NDArray[np.float64]) -> int:
        monitor = DriftMonitor()
        return sum(monitor.observe(0.8, float(one), margin=0.05, lower_only=True) for one in outcomes)

    assert sum(alarms(one) for one in streams) / len(streams) <= length / 10_000
    assert alarms(1 - streams[0]) > 0 == alarms(np.ones(20_000))  # better than predicted is no drift here


def test_it_begins_anew_after_an_alarm() -> None:
    monitor, never = DriftMonitor(), np.zeros(50, dtype=bool)
    first = observations_to_alarm(0.95, never, monitor)
    assert 1 < first < 20
    assert observations_to_alarm(0.95, never, monitor) == first
    assert observations_to_alarm(0.95, never[: first - 1], monitor) == first and monitor.evidence > 0


@pytest.mark.parametrize("always", [True, False])
def test_what_always_came_as_predicted_is_no_drift_however_long(always: bool) -> None:
    assert observations_to_alarm(float(always), np.full(20_000, always), DriftMonitor()) > 20_000


@pytest.mark.parametrize("predicted", [0.0, 0.03, 0.97, 1.0])
def test_certain_predictions_are_no_trouble(predicted: float) -> None:
    for margin in (0.0, 0.05):
        monitor = DriftMonitor()
        for agreed in (True, False) * 3:
            monitor.observe(predicted, agreed, margin=margin)
        assert np.isfinite(monitor.evidence)


PRIOR = Prior((Component(0.0, 0.2), Component(0.3, 2.0)), (0.5, 0.5))
COUNTED, SCORED = Agreement(PRIOR), Agreement(PRIOR, scores=SCORES)


def predicted(
    answers: list[int | None],
    decided: int,
    answer: int | None,
    scores: list[float] | None = None,
    rule: StoppingRule = COUNTED,
    n: int = 10_000,
    parted: tuple[float, float] | None = None,
) -> list[Prediction]:
    row = None if scores is None else 1
    given = np.array([[np.nan] * len(answers), scores or [np.nan] * len(answers)])
    return [*Expected(rule, row, n, parted).predictions(answers, given, decided, answer)]


@pytest.mark.parametrize(
    ("answers", "decided", "answer", "expected"),
    [
        ([0, 0, 0], 3, 0, [("going on", [1], 1.0)]),
        ([0, 1, 0, 1], 4, 0, [("going on", [1], 0.0)]),
        ([None, 0, None, 0], 4, 0, []),  # no vote shows no agreement
        ([0, 0, 1], 2, 0, [("going on", [1], 1.0), ("audits", [2], 0.0)]),
        ([0, 0], 1, 0, [("audits", [1], 1.0)]),  # the first was accepted: no rule went on
        ([0, 1, 1, 2, 1, 1], 5, 1, [("going on", [1], 0.0), ("audits", [3, 1, 1], 1.0)]),
        ([0, 1, 0, 2, 1, 1], 5, 1, [("going on", [1], 0.0)]),  # two lead, and the rule would take the other one
        ([0], 1, 0, []),
        ([0, 0], 2, 0, [("going on", [1], 1.0)]),
        ([None, 0], 1, None, []),
        ([None, None, 0, 1], 4, 0, [("going on", [1], 0.0)]),
    ],
)
def test_what_a_question_shows_and_what_was_expected(
    answers: list[int | None], decided: int, answer: int | None, expected: list[tuple[str, list[int], float]]
) -> None:
    found = predicted(answers, decided, answer)
    assert [(one.monitor, one.came) for one in found] == [(monitor, came) for monitor, _, came in expected]
    assert [one.expected for one in found] == pytest.approx([PRIOR.share(counts) for _, counts, _ in expected])


def test_scores_are_part_of_what_was_expected() -> None:
    for scores in ([2.0, -1.0, 0.0], [-2.0, 1.0, 0.0]):
        given = [Response("0", scores[0]), Response("0", scores[1])]
        first, both = (SCORED(given[:length]).agrees for length in (1, 2))
        assert [one.expected for one in predicted([0, 0, 1], 2, 0, scores, SCORED)] == [first, both]
        without = predicted([0, 0, 1], 2, 0, None, SCORED)
        assert [one.expected for one in without] == pytest.approx([PRIOR.share([1]), PRIOR.share([2])])
        assert first != pytest.approx(PRIOR.share([1]), abs=0.01)
    likeliest = predicted([0, 1, 1, 0], 3, 0, [3.0, -3.0, -3.0, 0.0], SCORED)
    assert [one.monitor for one in likeliest] == ["going on", "audits"], "the answer with fewer votes is followed"


def test_a_rule_that_expects_nothing_predicts_nothing() -> None:
    assert predicted([0, 0, 0], 2, 0, rule=ASC()) == []


def test_separations_come_from_what_decided() -> None:
    expected = (0.8, 0.1)
    found = predicted([0, 0, 1, 1, 1], 3, 0, [2.0, 1.0, 0.0, 9.0, 9.0], SCORED, parted=expected)
    assert found[-1] == Prediction("separation", 0.8, 0.1, 1.0)
    for parted, scores in ((None, [2.0, 1.0, 0.0]), (expected, None)):
        assert not any(one.monitor == "separation" for one in predicted([0, 0, 1], 3, 0, scores, parted=parted))


def test_margins_are_wide_where_little_was_seen() -> None:
    few, many, most = (predicted([0, 0, 0], 3, 0, n=n)[0] for n in (30, 300, 100_000))
    p = PRIOR.share([1])
    assert few.margin == pytest.approx(1.5 * np.sqrt(p * (1 - p) / 30)) and few.margin > 0.1 > many.margin
    assert many.margin == most.margin == 0.06
    assert not any(DriftMonitor().observe(0.8, at % 2 == 0, margin=0.5) for at in range(500))


def test_responses_are_those_of_a_row() -> None:
    scores = np.array([0.5, np.nan, np.inf])
    assert responses_of([7, None, 0], scores) == [Response("7", 0.5), Response(None), Response("0")]
    assert responses_of([7, None], None) == [Response("7"), Response(None)]


@pytest.mark.parametrize(
    ("answers", "scores", "expected"),
    [
        ([0, 0, 1], [2.0, 1.0, 0.0], [1.0]),
        ([0, 0, 1], [2.0, 0.0, 1.0], [0.5]),
        ([0, 0, 1], [1.0, 0.0, 1.0], [0.25]),  # equal scores count half
        ([0, 1, 1, 2, None], [9.0, 1.0, 2.0, 0.0, 9.0], [0.5]),  # 1 leads by counts, though 0 scores best
        ([0, 0, 1, 1], [np.nan, 1.0, 0.0, 0.0], []),  # two lead
        ([0, 0, 1], [1.0, 1.0, np.nan], []),
        ([0, 0], [1.0, 1.0], []),
        ([None], [1.0], []),
    ],
)
def test_separation_is_of_the_leader_by_counts(
    answers: list[int | None], scores: list[float], expected: list[float]
) -> None:
    assert list(separation(answers, np.array(scores))) == expected


@given(st.lists(st.tuples(st.sampled_from([None, 0, 1, 2]), st.integers(-3, 3)), max_size=12))
def test_separation_is_of_ranks_and_turns_with_the_scores(votes: list[tuple[int | None, int]]) -> None:
    answers, scores = [answer for answer, _ in votes], np.array([score for _, score in votes], dtype=float)
    found = list(separation(answers, scores))
    assert found == list(separation([None if one is None else 9 - one for one in answers], scores**3))
    assert [1 - one for one in found] == pytest.approx(list(separation(answers, -scores)))


def test_the_margin_of_a_separation_is_wide_where_little_was_seen() -> None:
    assert mean_separation([1.0] * 5) is None
    assert mean_separation([1.0, 0.5] * 8) == pytest.approx((0.75, 1.5 * np.std([1.0, 0.5] * 8, ddof=1) / 4))
    assert mean_separation([0.9] * 100) == pytest.approx((0.9, 0.05))
