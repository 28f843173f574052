"""The drift monitor: how rarely it errs, how soon it tells, and what it is fed with."""

import numpy as np
import pytest

from langchain_reasc.calibration import AgreementRates, DriftMonitor, NextResponse, next_responses

AGREEMENT = (0.6, 0.8, 0.95)


def observations_to_alarm(monitor: DriftMonitor, predicted: float, agreed: np.typing.NDArray[np.bool_]) -> int:
    """Observations up to the first alarm; beyond all of them where there is none."""
    told = (at for at, one in enumerate(agreed, 1) if monitor.observe(predicted, bool(one)))
    return next(told, len(agreed) + 1)


@pytest.mark.parametrize("predicted", AGREEMENT)
@pytest.mark.parametrize("off", [0.0, -0.05, 0.05])
def test_false_alarms_are_as_rare_as_it_says(predicted: float, off: float) -> None:
    streams, length = 1000, 100
    rng = np.random.default_rng(0)
    agreed = rng.random((streams, length)) < predicted + off
    alarms = sum(observations_to_alarm(DriftMonitor(), predicted, one) <= length for one in agreed)
    assert alarms / streams <= length / 5000  # and with good predictions far below
    assert off or alarms / streams <= 0.005


@pytest.mark.parametrize("predicted", AGREEMENT)
@pytest.mark.parametrize(("change", "within"), [(-0.3, 80), (-0.2, 200), (-0.1, 1000), (0.3, 80)])
def test_a_change_is_told_soon(predicted: float, change: float, within: int) -> None:
    if predicted + change > 1:
        pytest.skip("there is no such share")
    rng = np.random.default_rng(1)
    delays = []
    for _ in range(50):
        monitor = DriftMonitor()
        before = observations_to_alarm(monitor, predicted, rng.random(200) < predicted)
        after = rng.random(5 * within) < predicted + change
        delays.append(observations_to_alarm(monitor, predicted, after) if before > 200 else 0)
    assert np.median(delays) <= within


def test_it_begins_anew_after_an_alarm_and_goes_on_from_its_state() -> None:
    monitor = DriftMonitor()
    first = observations_to_alarm(monitor, 0.95, np.zeros(50, dtype=bool))
    assert 1 < first < 20
    assert observations_to_alarm(monitor, 0.95, np.zeros(50, dtype=bool)) == first
    for _ in range(first - 1):
        assert not monitor.observe(0.95, False)
    assert not DriftMonitor().observe(0.95, False)
    assert DriftMonitor(state=monitor.state).observe(0.95, False)
    assert DriftMonitor(state=(1.0,)).state == DriftMonitor().state  # of another version


@pytest.mark.parametrize("predicted", [0.0, 0.03, 0.97, 1.0])
@pytest.mark.parametrize("agreed", [True, False])
def test_certain_predictions_are_no_trouble(predicted: float, agreed: bool) -> None:
    for monitor in (DriftMonitor(), DriftMonitor(margin=0)):
        for _ in range(5):
            monitor.observe(predicted, agreed)
        assert all(np.isfinite(monitor.state))


def test_what_a_question_tells() -> None:
    def told(answers: list[int | None], decided: int, answer: int | None = 0) -> list[NextResponse]:
        return list(next_responses(answers, decided, answer))

    assert told([0, 0, 0], 3) == [NextResponse(False, 1, 1, True)]
    assert told([0, 1, 0, 1], 4) == [NextResponse(False, 1, 1, False)]
    assert told([None, 0, None, 0], 4) == [NextResponse(False, 1, 2, False)]  # no vote does not agree
    assert told([0, 0, 1], 2) == [NextResponse(False, 1, 1, True), NextResponse(True, 2, 2, False)]
    assert told([0, 0], 1) == [NextResponse(True, 1, 1, True)]  # the first was accepted: no rule went on
    assert told([0], 1) == []
    assert told([None, None], 2, None) == []
    assert told([None, 0], 1, None) == []


def test_rates_are_averages_drawn_to_those_of_their_kind() -> None:
    seen = [NextResponse(False, 1, 1, True)] * 3 + [NextResponse(False, 1, 2, False)]
    rates = AgreementRates(seen)

    def predicted(coming: NextResponse) -> float:
        found = rates.predict(coming)
        assert found is not None
        return found[0]

    assert predicted(NextResponse(False, 1, 1, True)) == pytest.approx((3 + 4 * 0.75) / 7)
    assert predicted(NextResponse(False, 1, 2, True)) == pytest.approx(4 * 0.75 / 5)
    assert predicted(NextResponse(False, 1, 9, True)) == pytest.approx(0.75)
    assert rates.predict(NextResponse(True, 2, 2, True)) is None


def test_margins_are_wide_where_little_was_seen() -> None:
    coming = NextResponse(False, 1, 1, True)
    predicted = [
        AgreementRates(NextResponse(False, 1, 1, at % 5 > 0) for at in range(n)).predict(coming)
        for n in (30, 300, 100_000)
    ]
    few, many, most = (one[1] for one in predicted if one)
    assert few == pytest.approx(1.5 * np.sqrt(25 / 32 * 7 / 32 / 30)) and few > 0.1 > many > 0.03
    assert most == 0.02
    assert not any(DriftMonitor().observe(0.8, at % 2 == 0, margin=0.5) for at in range(500))
