"""How answers agree: likelihoods as products of predictions, and looking ahead against every continuation there is."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method import LARGEST_HORIZON, Component, Prior, default_components, likelihoods, stays

PROCESSES = (Component(0.0, 1.0), Component(0.6, 0.3), Component(-1.0, 2.0), Component(-0.2, 0.6))
histories = st.lists(st.integers(0, 3), min_size=1, max_size=6)


def predicted(component: Component, counts: Sequence[int], answer: int | None) -> float:
    """P(the next answer is the one of this place; None: a new one | counts), of Pitman and Yor."""
    discount, concentration = component
    whole = sum(counts) + concentration
    if answer is not None:
        return (counts[answer] - discount) / whole
    return max(0.0, concentration + len(counts) * discount) / whole


def continuations(component: Component, counts: list[int], horizon: int) -> Iterator[tuple[float, list[int]]]:
    """Every way in which answers go on to the horizon, with its probability."""
    if sum(counts) == horizon:
        yield 1.0, counts
        return
    for at in [*range(len(counts)), None]:
        after = [*counts, 1] if at is None else [count + (place == at) for place, count in enumerate(counts)]
        for probability, end in continuations(component, after, horizon):
            yield predicted(component, counts, at) * probability, end


def leads(counts: Sequence[int]) -> float:
    return 0.0 if counts[0] < max(counts) else 1 / list(counts).count(max(counts))


@given(histories)
def test_a_likelihood_is_the_product_of_predictions_in_any_order(history: list[int]) -> None:
    for order in (history, history[::-1]):
        expected = np.ones(len(PROCESSES))
        counts: list[int] = []
        places: dict[int, int] = {}
        for answer in order:
            expected *= [predicted(one, counts, places.get(answer)) if counts else 1.0 for one in PROCESSES]
            if answer not in places:
                places[answer] = len(counts)
                counts.append(0)
            counts[places[answer]] += 1
        assert likelihoods([counts], PROCESSES)[0] == pytest.approx(expected)


def test_a_dirichlet_over_m_answers_is_that_of_scipy() -> None:
    """P(sequence) = m! / (m − k)! ways to name k answers, each of a Dirichlet-multinomial sequence."""
    from scipy.stats import dirichlet_multinomial

    counts, m, share = [3, 2], 3, 0.7
    ordered = math.factorial(5) / (math.factorial(3) * math.factorial(2))
    sequence = dirichlet_multinomial.pmf([*counts, 0], [share] * m, 5) / ordered
    found = likelihoods([counts], [Component(-share, m * share)])[0, 0]
    assert found == pytest.approx(sequence * m * (m - 1))


def test_a_dirichlet_over_m_answers_never_sees_another() -> None:
    two = Component(-1.0, 2.0)
    assert likelihoods([[2, 1], [2, 1, 1]], [two])[:, 0].tolist() == [pytest.approx(1 / 6 * 1.0), 0.0]
    assert stays((2, 1), 4, (two,))[0] == pytest.approx(3 / 5 + 1 / 2 * 2 / 5)  # 3:1, or 2:2


@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.integers(0, 3))
def test_looking_ahead_is_the_sum_over_all_continuations(counts: list[int], more: int) -> None:
    horizon = sum(counts) + more
    expected = [sum(p * leads(end) for p, end in continuations(one, counts, horizon)) for one in PROCESSES]
    assert stays(counts, horizon, PROCESSES) == pytest.approx(np.array(expected))


def test_answers_that_are_equal_in_the_end_share_the_lead() -> None:
    prior = Prior.uniform()
    assert prior.leader_stays([2, 2, 2], 6) == pytest.approx(1 / 3)
    assert prior.leader_stays([2, 1], 3) == pytest.approx(1.0)
    assert prior.leader_stays([1, 2], 3) == 0.0
    tied = prior.leader_stays([3, 3, 1], 12)
    assert 1 / 3 < tied < 1 / 2 and tied == prior.leader_stays([3, 1, 3], 12)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_weights_after_counts_are_weights(counts: list[int]) -> None:
    prior = Prior.uniform()
    assert prior.posterior(counts).sum() == pytest.approx(1.0)
    assert (prior.posterior(counts) >= 0).all()


def test_a_lead_that_is_certain_has_probability_one() -> None:
    assert Prior.uniform().leader_stays([4, 2], 6) == 1.0  # 1 + 2e-16 by the sum of the weights


def test_counts_that_no_component_allows_change_nothing() -> None:
    two = Prior((Component(-1.0, 2.0), Component(-0.2, 0.4)), (0.25, 0.75))
    assert two.posterior([2, 1, 1]).tolist() == [0.25, 0.75]
    assert 0 <= two.leader_stays([2, 1, 1], 8) <= 1


def test_hundreds_of_answers_are_no_more_than_can_be_counted() -> None:
    for counts in ([200], [150, 50, 1], [1] * 200):
        assert np.isfinite(Prior.uniform().posterior(counts)).all()


def test_counts_weigh_the_components_by_how_likely_they_are_under_each() -> None:
    prior = Prior((Component(0.0, 1.0), Component(-1.0, 2.0)), (0.25, 0.75))
    likely = 0.25 * (1 / 2 * 1 / 3) * 2, 0.75 * (1 / 3 * 1 / 2) * 2  # of 2 : 1 answers, up to what is common
    assert prior.posterior([2, 1]) == pytest.approx(np.array(likely) / sum(likely))


def test_it_looks_as_far_ahead_as_it_says_and_no_farther() -> None:
    prior = Prior.uniform()
    far = prior.leader_stays([4], LARGEST_HORIZON)
    assert 0.5 < far <= prior.leader_stays([4], 8) <= 1
    with pytest.raises(ConfigurationError, match="between 1 and 24 answers, got 25"):
        prior.leader_stays([4], LARGEST_HORIZON + 1)


@pytest.mark.parametrize("weights", [(1.0,), (0.5, 0.6), (1.5, -0.5)])
def test_weights_that_are_none_are_refused(weights: tuple[float, ...]) -> None:
    with pytest.raises(ConfigurationError):
        Prior(PROCESSES[:2], weights)


def test_default_components_are_processes_of_their_own() -> None:
    components = default_components()
    assert max(Counter(components).values()) == 1
    assert all(one.discount < 1 and one.concentration > -one.discount for one in components)
