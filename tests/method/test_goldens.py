"""Figures computed with the peers' own code: DeepConf's bottom-10 % confidence, ASC's first stops."""

import math

import pytest

from langchain_reasc.method import ASC, ReASC, Response, Standardizer, decide, posterior, response_score

from .by_hand import outcome

DEEPCONF = [((i * 37) % 101) / 10 for i in range(300)]


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (32, 4.785697115384615),
        (64, 4.873709239130435),
        (128, 4.948988970588235),
        (256, 4.97919921875),
        (301, 4.989333333333334),
    ],
)
def test_bottom_ten_percent_equals_deepconf(window: int, expected: float) -> None:
    assert response_score(DEEPCONF, score="bottom_group", window=window) == pytest.approx(expected, abs=1e-12, rel=0)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [(4, 0, 0.96875), (6, 1, 0.96484375), (8, 2, 0.96728515625), (9, 3, 0.953857421875)],
)
def test_asc_first_stops(first: int, second: int, expected: float) -> None:
    responses = [Response("b")] * second + [Response("a")] * first
    decision = decide(ASC(), responses)
    assert outcome(decision) == (True, "a", "evidence", len(responses))
    assert decision.posterior == pytest.approx(expected, abs=1e-12)
    assert not decide(ASC(), responses[:-1]).stop, "one vote fewer must go on"


@pytest.mark.parametrize(("weight", "stops"), [(3.322, True), (3.3215, False)])
def test_one_heavy_vote_stops_alone(weight: float, stops: bool) -> None:
    """Unopposed, 1 - 2^-(v+1) ≥ 0.95 from v = log2(20) - 1 = 3.3219 on, which λ = 0.7 gives at z = 1.715."""
    assert (posterior({"a": weight}) >= 0.95) is stops
    z = math.log(weight) / 0.7
    rule = ReASC(Standardizer(mean=10.0, std=2.0))
    assert decide(rule, [Response("a", 10.0 + 2.0 * z)]).stop is stops
    assert z == pytest.approx(1.715, abs=1e-3)
