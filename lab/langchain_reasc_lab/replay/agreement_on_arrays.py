"""The agreement rule and the Bayesian vote on arrays; importing this lets ``decide_many`` know them."""

import math
from dataclasses import replace

import numpy as np

from langchain_reasc.method.agreement import Agreement
from langchain_reasc.method.bayesian_vote import BayesianVote, probability_of_leader
from langchain_reasc_lab.replay.array_rules import GOES_ON, Verdicts, after_each, on_arrays
from langchain_reasc_lab.replay.vote_arrays import Booleans, Floats, Integers, Tally, Votes, tally

__all__: list[str] = []

_NEAR = 1e-9  # of a threshold, where the last bit of an exponential may decide


@on_arrays(Agreement)
def _agreement(rule: Agreement, votes: Votes) -> Verdicts | None:
    counts = tally(votes)
    settled = _stays(rule, counts, votes.width) >= rule.threshold
    if votes.width:
        settled[:, 0] &= ~votes.cut_off[:, 0]
    agreed = Verdicts.stopping(counts, settled, "agreement")
    if rule.vote is None:
        return agreed
    voted = after_each(rule.vote, votes)
    if voted is None:
        return None
    same = np.where(voted.answers == agreed.answers, agreed.reasons, np.int8(GOES_ON))
    return voted.elsewhere(replace(agreed, reasons=same))


def _stays(rule: Agreement, counts: Tally, width: int) -> Floats:
    """P(the leader now is what the whole budget would answer) after each response, shape (Q, n)."""
    shape, answers = counts.leader.shape, counts.evidence.shape[2]
    leader = np.arange(answers) == counts.leader[:, :, None]
    others = -np.sort(-np.where(leader, 0.0, counts.evidence), axis=2)[:, :, : max(0, answers - 1)]
    left = np.broadcast_to(np.maximum(0, rule.budget - np.arange(1, width + 1)), shape)
    led = np.where(counts.leader >= 0, counts.first, 0.0)
    states = np.concatenate([left[:, :, None], led[:, :, None], others], axis=2).reshape(-1, 1 + max(1, answers))
    known, place = np.unique(states.astype(np.int64), axis=0, return_inverse=True)
    found = [rule.leader_stays(lead, [n for n in more if n], after) for after, lead, *more in known.tolist()]
    return np.array(found)[place.reshape(shape)] if found else np.zeros(shape)


@on_arrays(BayesianVote)
def _bayesian_vote(rule: BayesianVote, votes: Votes) -> Verdicts | None:
    answered = votes.answers >= 0
    missing = answered & np.isnan(votes.scores)
    if rule.on_missing_confidence == "error" and missing.any():
        return None
    weights = np.zeros(votes.answers.shape)
    weights[answered] = [rule.log_weight(None if math.isnan(one) else one) for one in votes.scores[answered].tolist()]
    sums = tally(votes, weights)
    sufficient = _sufficient(rule, sums, _seen(votes.answers, sums.evidence.shape[2]))
    if votes.width:
        sufficient[:, 0] &= ~votes.cut_off[:, 0]
    return Verdicts.stopping(sums, sufficient, "evidence")


def _seen(answers: Integers, known: int) -> Booleans:
    """Which answers there are after each response, shape (Q, n, K)."""
    return np.logical_or.accumulate(answers[:, :, None] == np.arange(known), axis=1)


def _sufficient(rule: BayesianVote, sums: Tally, seen: Booleans) -> Booleans:
    scale = np.maximum(0.0, sums.first)
    odds = np.where(seen, np.exp(sums.evidence - scale[:, :, None]), 0.0).sum(axis=2)
    certain = np.where(sums.leader >= 0, np.exp(sums.first - scale) / (np.exp(-scale) + odds), 0.0)
    enough = certain >= rule.threshold
    for row, at in np.argwhere(np.abs(certain - rule.threshold) < _NEAR).tolist():
        held = {str(number): sums.evidence[row, at, number] for number in np.flatnonzero(seen[row, at]).tolist()}
        enough[row, at] = probability_of_leader(held) >= rule.threshold
    return enough
