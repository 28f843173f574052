"""What rules lose where all questions are equally hard: the same as of responses that are drawn."""

from itertools import product

import numpy as np
import pytest

from benchmarks.one_difficulty import RIGHT, WRONG, Stops, World, losses
from langchain_reasc.method import Cap, FiniteHorizon, Lead, Response, StoppingRule, decide


@pytest.mark.parametrize("rule", [Cap(6), Lead(2), FiniteHorizon(0.9, 6)], ids=lambda rule: rule.name)
@pytest.mark.parametrize("wrong", [1, 2])
def test_all_orders_of_responses_are_counted(rule: StoppingRule, wrong: int) -> None:
    world = World(0.6, wrong)
    chances = [world.right, *[(1 - world.right) / wrong] * wrong]
    samples, right = 0.0, 0.0
    for drawn in product(range(wrong + 1), repeat=6):
        decision = decide(rule | Cap(6), [Response(str(answer)) for answer in drawn])
        likely = float(np.prod([chances[answer] for answer in drawn]))
        samples += likely * decision.samples
        right += likely * (decision.answer == "0")
    assert Stops.of(rule, wrong=wrong, budget=6).within(world) == pytest.approx((samples, right))


def test_a_lead_is_the_gamblers_ruin_where_the_budget_hardly_ends() -> None:
    accuracy = Stops.of(Lead(2), wrong=1, budget=60).within(World(0.7, 1))[1]
    assert accuracy == pytest.approx(1 / (1 + (0.3 / 0.7) ** 2), abs=1e-6)


def test_losses_are_those_to_the_whole_budget() -> None:
    assert {(round(loss.tokens, 9), loss.points) for loss in losses(Cap(8), 8)} == {(1.0, 0.0)}
    found = list(losses(Lead(3), 16))
    assert [loss.world for loss in found] == [World(right, wrong) for wrong in WRONG for right in RIGHT]
    worst = min(found, key=lambda loss: loss.points)
    assert (worst.world, round(worst.points, 2)) == (World(0.65, 1), -3.66)
