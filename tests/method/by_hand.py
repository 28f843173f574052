"""Responses spelled in letters, and what decisions come to, for rules that are worked out by hand."""

import json
from collections.abc import Sequence
from typing import Any

from langchain_reasc.method import Cap, Decision, Response, StoppingRule, decide
from langchain_reasc.method.score_model import ScoreModel

SCORES = ScoreModel(((-3.0, -3.0), (3.0, 3.0)), -0.4, 0.3, 0.9, 0.3, 0.1, 0.4)
"""Scores that are their own normal scores, and tell of questions and of answers."""


def responses(
    answers: str, scores: Sequence[float | None] | None = None, *, score: float | None = None, kind: str | None = None
) -> list[Response]:
    """One letter per response; "-" is a response without an answer. The score is that of all where none are given."""
    given = [score] * len(answers) if scores is None else scores
    return [Response(None if a == "-" else a, s, kind=kind) for a, s in zip(answers, given, strict=True)]


def having(score: float | None = None, kind: str | None = None, **fields: Any) -> Response:
    """A response whose answer is an object with these fields."""
    spelled = {name: json.dumps(value) for name, value in fields.items()}
    return Response(json.dumps(fields, sort_keys=True), score, kind=kind, fields=spelled)


def outcome(decision: Decision) -> tuple[bool, str | None, str | None, int]:
    return decision.stop, decision.answer, decision.reason, decision.samples


def check_that_a_stop_stands(rule: StoppingRule, given: list[Response], later: list[Response]) -> None:
    """It is the first, it comes from what was seen by then, and what comes later changes nothing."""
    rule = rule | Cap(len(given))  # so that there is a stop
    decision = decide(rule, given)
    assert decision.stop and decision.reason
    assert decide(rule, given + later) == decision
    assert decide(rule, given[: decision.samples]) == decision
    assert not any(decide(rule, given[:n]).stop for n in range(1, decision.samples))
