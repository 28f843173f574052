"""Which answers of a small model may stand: the evidence, the order of tests, and what is known of two models."""

import math
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binom

from langchain_reasc.calibration import LearnedEscalation, Shadowed, rate_bound
from langchain_reasc.calibration.escalation import ALPHA, evidence_within
from langchain_reasc.method import FirstConfident, Race, Response, decide

BETS = (0.02, 0.15, 0.3, 0.45, 0.6)
RACES = ("3 equal votes", "2 equal votes", "1 equal vote")
COSTS = (1.0, 10.0)
AGREES, WRONG = Shadowed((0, 0, 0), (0,), costs=COSTS), Shadowed((0, 0, 0), (1, 1), costs=COSTS)
CONTESTED, MUTE = Shadowed((0, 1), (1,)), Shadowed((None,), (0,))

answers = st.one_of(st.none(), st.integers(0, 2))
rows = st.builds(
    Shadowed,
    small=st.lists(answers, min_size=3, max_size=3).map(tuple),
    large=st.lists(answers, min_size=1, max_size=2).map(tuple),
    score=st.one_of(st.none(), st.integers(0, 8).map(float)),
    costs=st.tuples(st.integers(1, 3).map(float), st.integers(10, 30).map(float)),
)


def known(given: Sequence[Shadowed], **fields: Any) -> LearnedEscalation:
    """What is known after these questions."""
    after = LearnedEscalation(**fields)
    for row in given:
        after = after.after(row)
    return after


def directly(within: float, contradictions: Sequence[bool]) -> float:
    """The evidence as a product of bets, each on a lower rate than the bound, question by question."""
    capital = [1.0] * len(BETS)
    for contradicts in contradictions:
        for at, bet in enumerate(BETS):
            rate = bet * within
            capital[at] *= rate / within if contradicts else (1 - rate) / (1 - within)
    return sum(capital) / len(capital)


@given(st.floats(0.01, 0.6), st.lists(st.booleans(), max_size=60))
def test_the_evidence_is_the_product_of_bets(within: float, contradictions: list[bool]) -> None:
    evidence = evidence_within(within, len(contradictions), sum(contradictions))
    assert evidence == pytest.approx(math.log(directly(within, contradictions)), abs=1e-9)


@pytest.mark.parametrize("within", [0.02, 0.05, 0.2])
@pytest.mark.parametrize("count", [1, 20, 300])
def test_without_an_edge_the_bets_win_nothing(within: float, count: int) -> None:
    """At the bound the expected capital is 1, and below 1 above the bound."""
    numbers = np.arange(count + 1)
    capital = np.exp([evidence_within(within, count, int(at)) for at in numbers])
    assert binom.pmf(numbers, count, within) @ capital == pytest.approx(1.0)
    assert binom.pmf(numbers, count, 1.2 * within) @ capital < 1.0


@given(st.integers(1, 400), st.data())
def test_the_bound_is_that_of_the_evidence_and_never_below_the_exact_one(count: int, data: Any) -> None:
    contradicted = data.draw(st.integers(0, min(count, 30)))
    bound = rate_bound(count, contradicted)
    exact = beta.ppf(1 - ALPHA, contradicted + 1, count - contradicted) if contradicted < count else 1.0
    assert exact - 1e-5 <= bound <= 1.0 and contradicted / count <= bound
    assert rate_bound(count + 1, contradicted) <= bound + 1e-5
    assert rate_bound(count + 1, contradicted + 1) >= bound - 1e-5
    for within in (0.02, 0.05, 0.3):
        if abs(within - bound) > 1e-5:
            assert (evidence_within(within, count, contradicted) >= -math.log(ALPHA)) == (bound < within)


@pytest.mark.parametrize(("within", "needed"), [(0.05, 76), (0.02, 192), (0.2, 18)])
def test_questions_without_a_contradiction_that_a_promise_takes(within: float, needed: int) -> None:
    assert known([AGREES] * (needed - 1), within=within).rule is None
    admitted = known([AGREES] * needed, within=within)
    assert admitted.rule == "1 equal vote" and all(admitted.tested[one].admitted == needed for one in RACES)
    assert rate_bound(needed, 0) <= within < rate_bound(needed - 1, 0)


def simulated(worlds: int, count: int, rates: Sequence[float], within: float) -> np.ndarray[Any, Any]:
    """Share of worlds in which each race is ever admitted; it contradicts at its rate, from cautious to bold."""
    rng = random.Random(16)
    admitted = np.zeros(3)
    dissent = [(0, 1, 2), (0, 0, 1), (0, 0, 0)]  # small answers that 1, 2 and 3 equal votes accept
    for _ in range(worlds):
        after = LearnedEscalation(within=within)
        for _ in range(count):
            drawn = rng.random()
            accepted_by = next((at for at, rate in zip((2, 1, 0), rates, strict=True) if drawn < rate), None)
            after = after.after(AGREES if accepted_by is None else Shadowed(dissent[accepted_by], (3, 3)))
            if after.tested[RACES[2]].admitted is not None:
                break
        admitted += [after.tested[one].admitted is not None for one in RACES]
    return admitted / worlds


@pytest.mark.full
@pytest.mark.parametrize(
    ("rates", "wrong"),
    [((0.5, 0.5, 0.5), (0, 1, 2)), ((0.0, 0.5, 0.5), (1, 2)), ((0.0, 0.0, 0.5), (2,))],
    ids=["none may stand", "only three votes", "two votes"],
)
def test_a_rule_that_may_not_stand_is_hardly_ever_admitted(rates: Any, wrong: Any) -> None:
    worlds = 120
    share = simulated(worlds, 40, rates, within=0.5)
    most = binom.ppf(0.999, worlds, ALPHA) / worlds
    assert all(share[at] <= most for at in wrong)
    assert all(share[at] > 0.95 for at in {0, 1, 2} - set(wrong))


@given(st.lists(rows, max_size=60))
def test_a_rule_is_admitted_after_those_before_it_and_only_by_its_evidence(given_rows: list[Shadowed]) -> None:
    after = LearnedEscalation(within=0.5)
    for row in given_rows:
        before, after = after, after.after(row)
        admitted = [after.tested[one].admitted for one in RACES if one in after.tested]
        for cautious, bold in pairwise(admitted):
            assert bold is None or (cautious is not None and cautious <= bold)
        for name in RACES if after.tested else ():
            record = after.tested[name]
            if record.admitted == after.rows:
                evidence = evidence_within(0.5, sum(record.rows), record.contradicted)
                assert evidence >= -math.log(ALPHA) and before.tested[name].admitted is None


@given(st.lists(rows, max_size=50), st.booleans())
def test_it_is_kept_as_json_and_its_sums_add_up(given_rows: list[Shadowed], scored: bool) -> None:
    after = known(given_rows, within=0.001, scored=scored)  # under which nothing is admitted, or drifts
    assert LearnedEscalation.model_validate_json(after.model_dump_json()) == after
    assert after.rows == len(given_rows) and after.costs[0] == sum(one.costs[0] for one in given_rows)
    for name, record in after.tested.items():
        seen = given_rows if name in RACES else given_rows[after.rows - sum(record.rows) :]
        agreeing = sum(one.agrees for one in seen)
        assert record.rows == (agreeing, len(seen) - agreeing)
        for rows_of, played, accepted, samples in zip(
            record.rows, record.played, record.accepted, record.samples, strict=True
        ):
            assert 0 <= accepted <= played <= rows_of and played <= samples <= 3 * played
        assert record.contradicted <= record.accepted[1] and 0 <= record.share_accepted <= 1
        rule = after.rule_named(name)
        told = [one.decision(rule) for one in seen]
        assert sum(record.accepted) == sum(one.stop and not one.undecided for one in told)
        if seen:  # all of these were played out
            direct = np.mean([one.samples for one in told]) * 0.1 + 1 - np.mean([not one.undecided for one in told])
            assert record.cost(0.1) == pytest.approx(direct)
    assert known(given_rows[::-1], within=0.001).tested == known(given_rows, within=0.001).tested


def test_the_cost_is_estimated_from_questions_that_were_played_out() -> None:
    """A first answer that agrees ends most questions, which would make the small model look sparing."""
    rng = random.Random(3)
    after = played = LearnedEscalation(within=0.01)
    for _ in range(600):
        agrees, equal = rng.random() < 0.8, rng.random() < 0.7
        small, large = (0, 0, 0) if equal else (0, 1), (0,) if agrees else (2, 2)
        known_answer = after.shadow_rule("0" if agrees else "2")
        drawn = small[: decide(known_answer, [one for one in row_responses(small)]).samples]
        played, after = played.after(Shadowed(small, large)), after.after(Shadowed(drawn, large))
    for name in RACES:
        assert after.tested[name].cost(0.1) == pytest.approx(played.tested[name].cost(0.1), abs=0.03)
    assert sum(after.tested[RACES[0]].played) < 350


def row_responses(small: Sequence[int | None]) -> Any:
    return [Response(None if one is None else str(one)) for one in small]


@pytest.mark.parametrize(
    ("row", "agrees", "contradicts", "by_race"),
    [
        (AGREES, True, False, "unanimous"),
        (WRONG, False, True, "unanimous"),
        (Shadowed((0, 0, 0), (1, 0)), False, False, "unanimous"),
        (Shadowed((0, 0, 0), (1, None)), False, False, "unanimous"),
        (Shadowed((0, 0, 0), (1,)), False, True, "unanimous"),
        (CONTESTED, False, True, "contested"),
        (MUTE, False, True, "contested"),
        (Shadowed((0, 0, 0), (1, 1), right=(True, False)), False, False, "unanimous"),
        (Shadowed((0, 0, 0), (1,), right=(False, True)), False, True, "unanimous"),
        (Shadowed((0, 0, 0), (1,), right=(False, False)), False, False, "unanimous"),
    ],
)
def test_what_contradicts(row: Shadowed, agrees: bool, contradicts: bool, by_race: str) -> None:
    assert (row.agrees, row.contradicts, row.decision(Race(3)).reason) == (agrees, contradicts, by_race)
    record = known([row]).tested["3 equal votes"]
    assert record.contradicted == (contradicts and by_race == "unanimous")


def test_the_large_model_is_asked_again_only_where_that_tests_something() -> None:
    begun = LearnedEscalation()
    assert not begun.asks_again(AGREES) and not begun.asks_again(MUTE)
    assert begun.asks_again(Shadowed((0, 0, 0), (1,)))
    assert begun.asks_again(Shadowed((0, 0, 1), (1,))), "two equal votes accept it"
    assert not begun.asks_again(Shadowed((0, 1), (1,))), "one vote is not tested yet"
    assert not begun.asks_again(Shadowed((0, 0, 0), (1,), right=(False, True)))
    admitted = known([AGREES] * 18, within=0.2)
    assert admitted.asks_again(Shadowed((0, 1), (1,))), "one vote is admitted, and watched"


def test_courses() -> None:
    begun = LearnedEscalation(within=0.2)
    assert (begun.course(0.99, 0.05).rule, begun.course(0.99, 0.05).shadowed) == (None, True)
    admitted = known([AGREES] * 18, within=0.2)
    assert admitted.course(0.99, 0.05).rule == Race(1)
    assert [admitted.course(drawn, 0.05).shadowed for drawn in (0.299, 0.301)] == [True, False], "it is on trial"
    confirmed = known([AGREES] * 36, within=0.2)
    assert [confirmed.course(drawn, 0.05).shadowed for drawn in (0.049, 0.051)] == [True, False]
    assert known([WRONG], within=0.2).course(0.99, 0.05).shadowed, "one contradiction is no reason to give up"
    refused = known([WRONG] * 12, within=0.2)
    assert refused.course(0.99, 0.05).rule is None
    assert [refused.course(drawn, 0.5).shadowed for drawn in (0.029, 0.031)] == [True, False]
    assert "12 questions" in refused.status
    assert "12 of 12" in refused.status
    dear = known([Shadowed((0, 0, 0), (0,), costs=(1.0, 2.0))] * 12, within=0.01)
    assert "would cost" in dear.status and dear.course(0.99, 0.05).rule is None


def test_a_rule_that_does_not_pay_does_not_decide() -> None:
    """Three votes that each cost half an answer of the large model cost more than that."""
    mixed = [Shadowed((0, 0, 0), (0,), costs=(1.0, 1.0))] * 18
    assert known(mixed, within=0.2).rule is None
    assert known([Shadowed((0, 0, 0), (0,), costs=(1.0, 3.0))] * 18, within=0.2).rule == "1 equal vote"


@pytest.mark.parametrize(("rate", "restarts"), [(0.05, False), (0.6, True)])
def test_drift_forgets_all(rate: float, restarts: bool) -> None:
    rng, after = random.Random(7), known([AGREES] * 18, within=0.2)
    for _ in range(400):
        after = after.after(WRONG if rng.random() < rate else AGREES)
        if after.restarts:
            break
    assert bool(after.restarts) == restarts
    if restarts:
        assert after.rows == 0 and not after.tested and after.within == 0.2
        assert known([AGREES] * 18, within=0.2).restarts == 0


def test_contradictions_in_a_row_are_audited_more() -> None:
    """Evidence of drift that is not yet an alarm sends more questions to both models."""
    after, shares = known([AGREES] * 60, within=0.2), list[bool]()
    for row in (WRONG, WRONG, WRONG):
        shares.append(after.course(0.29, 0.05).shadowed)
        after = after.after(row)
    assert after.restarts == 0 and not shares[0] and after.course(0.29, 0.05).shadowed
    assert not after.course(0.31, 0.05).shadowed


def test_an_admitted_rule_is_on_trial_until_a_second_block_agrees_by_itself() -> None:
    admitted = known([AGREES] * 76)
    assert admitted.is_on_trial and "on trial" in admitted.status and "0 of 0" in admitted.status
    clean = known([AGREES] * 75, within=0.05)
    assert not clean.is_on_trial and clean.trial is None, "nothing is admitted yet"
    again = known([AGREES] * (76 + 42))
    assert again.is_on_trial and "0 of 42" in again.status
    confirmed = again.after(AGREES)
    assert not confirmed.is_on_trial and confirmed.trial is None and "on trial" not in confirmed.status
    assert all(confirmed.tested[one].confirmed == 119 for one in RACES)
    assert confirmed.status_changed(again) and confirmed.rule == again.rule == "1 equal vote"
    assert not known([*[AGREES] * 119, WRONG]).is_on_trial, "a trial is held once"
    block = known([*[AGREES] * 100, WRONG, *[AGREES] * 59])
    assert block.restarts == 0 and block.is_on_trial, "160 questions with 1 contradiction are enough, the last 84 not"
    assert rate_bound(160, 1) < 0.05 and rate_bound(84, 1, 0.2) > 0.05


def test_a_rule_of_a_clean_first_topic_is_withdrawn_in_a_bad_one() -> None:
    """After 80 clean questions come 400 on which 30 % of the answers contradict."""
    delivered = []
    for seed in range(20):
        rng, after, wrong = random.Random(seed), LearnedEscalation(), 0
        for at in range(480):
            row = WRONG if at >= 80 and rng.random() < 0.3 else AGREES
            course = after.course(rng.random(), 0.05)
            if course.shadowed:
                after = after.after(row)
            elif course.rule is not None:
                wrong += row is WRONG
        delivered.append(wrong)
        assert after.restarts == 1 and after.rule is None
    assert np.mean(delivered) < 15, "without trials, and with the alarm that one model has, 59"


def test_what_was_stored_before_there_were_trials_is_on_trial() -> None:
    after = known([AGREES] * 200)
    assert not after.is_on_trial
    stored = after.model_dump(mode="json")
    for rule in stored["tested"].values():
        del rule["since"], rule["confirmed"]
    earlier = LearnedEscalation.model_validate(stored)
    assert earlier.is_on_trial and earlier.rule == after.rule
    for _ in range(76):
        earlier = earlier.after(AGREES)
    assert not earlier.is_on_trial


def scored(at: int, *, wrong: bool = False) -> Shadowed:
    """A question whose first response is confident (1) or not (0), and contradicts only if it is not."""
    confident = at % 2 == 0
    small = (0, 0, 0) if confident else (0, 1)
    return Shadowed(small, (0,) if confident else (2, 2), float(confident), costs=COSTS)


def test_rules_by_confidence_are_tested_after_their_thresholds_are_set() -> None:
    begun = known([scored(at) for at in range(32)], within=0.2, scored=True)
    assert set(begun.tested) == set(RACES) and len(begun.first_scores) == 32
    after = known([scored(at) for at in range(120)], within=0.2, scored=True)
    named = next(name for name in after.tested if name.startswith("the 50%"))
    assert sum(after.tested[named].rows) == 120 - 32 and after.rule_named(named) == FirstConfident(0.5)
    assert after.tested[named].contradicted == 0 and after.tested[named].admitted is not None
    bold = next(name for name in after.tested if name.startswith("the 90%"))
    assert after.tested[bold].contradicted > 0 and after.tested[bold].admitted is None
    assert after.tested["1 equal vote"].admitted is None
    alone, both = ([AGREES] * 76, [Shadowed((0, 0, 0), (0,), 1.0)] * 76)
    assert known(alone).tested[RACES[0]].admitted and not known(both, scored=True).tested[RACES[0]].admitted


def test_it_says_what_it_promises() -> None:
    after = known([*[AGREES] * 40, WRONG], within=0.2)
    assert after.rule is not None and after.status == after.promise(after.rule)
    promise = after.promise(after.rule)
    assert promise.startswith("1 equal vote") and "random order" in promise
    assert "on 1 of 41 questions" in promise and promise.endswith("(95% confidence)")
    bound = float(promise.partition("at most ")[2].partition("%")[0]) / 100
    assert bound == pytest.approx(min(0.2, rate_bound(41, 1)), abs=0.0006)
    assert "random order" in after.plain_words()[0]
    begun = LearnedEscalation()
    assert "0 questions" in begun.status
    assert "1 question " in known([AGREES]).status
    assert not begun.status_changed(begun) and after.status_changed(begun)
