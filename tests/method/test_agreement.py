"""The agreement rule: it stops when the whole budget would hardly answer otherwise, with votes counted or weighed."""

import pytest

from langchain_reasc.exceptions import LogprobsUnavailable
from langchain_reasc.method import (
    Agreement,
    BayesianVote,
    Cap,
    Component,
    LogisticOdds,
    Prior,
    Response,
    Standardizer,
    decide,
    stays_ahead,
)

from .by_hand import responses

PRIOR = Prior.uniform()
COUNTED = Agreement(PRIOR)
VOTE = BayesianVote(LogisticOdds(Standardizer(0.0, 1.0), 1.0, 0.0), 0.98, alternatives=1.0)
WEIGHED = Agreement(PRIOR, vote=VOTE)


def scored(*pairs: tuple[str | None, float]) -> list[Response]:
    return [Response(answer, score) for answer, score in pairs]


def test_it_stops_when_the_leader_hardly_changes() -> None:
    decision = COUNTED(responses("aaaa"))
    assert decision.posterior == pytest.approx(PRIOR.leader_stays([4], 16))
    sure = Agreement(PRIOR, 0.9)
    ended = decide(sure, responses("aaaaaaaaaaaaaaaa"))
    assert (ended.stop, ended.answer, ended.reason) == (True, "a", "agreement")
    assert ended.samples == next(n for n in range(1, 17) if PRIOR.leader_stays([n], 16) >= 0.9)
    assert ended.evidence == {"a": ended.samples}


def test_a_response_without_an_answer_uses_a_call() -> None:
    assert COUNTED(responses("aa-")).posterior == pytest.approx(PRIOR.leader_stays([2], 15))
    spent = Agreement(PRIOR, budget=4)(responses("--a-"))
    assert not spent.stop and spent.posterior == Cap(4)(responses("a")).posterior  # a spent budget is no agreement
    assert Agreement(PRIOR, budget=5)(responses("--a-")).posterior == pytest.approx(PRIOR.leader_stays([1], 2))


def test_with_the_budget_spent_a_tie_is_not_decided() -> None:
    rule = Agreement(PRIOR, budget=4)
    assert not rule(responses("abab")).stop
    ended = decide(rule | Cap(4), responses("abab"))
    assert (ended.answer, ended.reason) == ("a", "budget")
    assert rule(responses("ababb")).answer == "b"  # more than the budget, as when several run at once


def test_a_larger_budget_than_is_looked_ahead_to() -> None:
    rule = Agreement(PRIOR, budget=40)
    assert rule(responses("aaaa")).posterior == pytest.approx(PRIOR.leader_stays([4], 24))
    for split in ("a" * 13 + "b" * 11, "a" * 16 + "b" * 15):  # of which the 24th answer decides nothing
        decision = rule(responses(split))
        assert not decision.stop
        assert decision.posterior == stays_ahead(split.count("a"), split.count("b"), 40 - len(split))
    assert rule(responses("a" * 20 + "b" * 12)).posterior == stays_ahead(20, 12, 8)
    assert rule(responses("a" * 20 + "b" * 2)).stop and not rule(responses("a" * 21 + "b" * 19)).stop


def test_a_first_response_decides_where_answers_always_agree_but_not_when_cut_off() -> None:
    always = Agreement(Prior((Component(0.0, 1e-4),), (1.0,)))
    assert always(responses("a")).reason == "agreement"
    assert not always([Response("a", cut_off=True)]).stop
    assert always([Response("a", cut_off=True), Response("a")]).stop
    weighed = Agreement(always.prior, vote=VOTE)
    assert not weighed([Response("a", 9.0, cut_off=True)]).stop
    assert weighed([Response("a", 9.0)]).reason == "evidence"


def test_only_a_vote_reads_scores_and_may_take_the_first_alone() -> None:
    assert (COUNTED.reads_scores, COUNTED.may_accept_first) == (False, False)
    assert (WEIGHED.reads_scores, WEIGHED.may_accept_first) == (True, True)
    assert COUNTED.weights(responses("ab")) == [1.0, 1.0]
    assert WEIGHED.weights(scored(("a", 3.0), ("b", -9.0), (None, 1.0))) == [3.0, 0.5, 0.0]


def test_weighted_votes_lead_and_counts_stop_only_the_same_leader() -> None:
    against = scored(("a", 0.0), ("a", 0.0), ("a", 0.0), ("a", 0.0), ("a", 0.0), ("b", 3.0))
    decision = Agreement(PRIOR, 0.6, vote=VOTE)(against)
    assert COUNTED(against).answer == "a" and COUNTED(against).posterior > 0.6
    assert (decision.answer, decision.stop) == ("b", False)
    agreeing = scored(("a", 0.0), ("a", 0.0), ("a", 0.0))
    decision = Agreement(PRIOR, 0.6, vote=VOTE)(agreeing)
    assert (decision.answer, decision.reason) == ("a", "agreement")
    assert decision.evidence == {"a": 1.5} and decision.posterior == COUNTED(agreeing).posterior


def test_sufficient_votes_stop_whatever_the_counts_say() -> None:
    decision = decide(WEIGHED, scored(("a", 0.0), ("b", 8.0)))
    assert (decision.answer, decision.reason, decision.samples) == ("b", "evidence", 2)


def test_a_missing_score_is_an_error_or_an_average_one() -> None:
    with pytest.raises(LogprobsUnavailable):
        WEIGHED(responses("a"))
    assert not WEIGHED(responses("-")).stop  # it casts no vote
    lenient = Agreement(PRIOR, vote=BayesianVote(VOTE.odds, 0.98, alternatives=1.0, on_missing_confidence="count"))
    assert lenient(responses("a")).evidence == {"a": 0.5}


def test_kinds_are_voted_on_first() -> None:
    calls = [Response(f"search {n}", kind="search") for n in range(6)]
    decision = decide(Agreement(PRIOR, 0.8), calls)
    assert decision.parts["kind"].reason == "agreement" and decision.parts["kind"].answer == "search"
    assert not decision.stop and not decision.parts["answer"].stop
