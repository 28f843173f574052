"""Every stopping rule over 300 seeded streams of responses: the decision after each of them, to nine digits."""

import hashlib
import json
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import langchain_reasc as lr
from langchain_reasc import Response, decide

from .fakes import decided, raised
from .inner import by_field, other_rules, other_weights, statistics

REASC = lr.ReASC(statistics(1.0, 0.5))
GATED = lr.ReASC(statistics(1.0, 0.5), gate=1.8, on_missing_confidence="count")
RULES: dict[str, Any] = {
    "asc": lr.ASC(),
    "asc 0.8": lr.ASC(0.8),
    "asc just reached": lr.ASC(0.9375),  # by three votes to none
    "finite horizon, all but sure": lr.FiniteHorizon(0.999, 8),
    "esc": lr.ESC(),
    "esc 2": lr.ESC(2),
    "cap 5": lr.Cap(5),
    "fixed budget 1": lr.FixedBudget(1),
    "reasc": REASC,
    "reasc gated": GATED,
    "finite horizon": lr.FiniteHorizon(),
    "finite horizon 0.9 of 8": lr.FiniteHorizon(0.9, 8),
    "cannot catch up": lr.CannotCatchUp(16),
    "cannot catch up 7": lr.CannotCatchUp(7),
    "lead 2": lr.Lead(2),
    "reasc | cap": REASC | lr.Cap(6),
    "asc & esc": lr.ASC(0.8) & lr.ESC(3),
    "asc | cannot catch up | cap": lr.ASC() | lr.CannotCatchUp(12) | lr.Cap(12),
    "(esc & gated) | cap": (lr.ESC(2) & GATED) | lr.Cap(9),
    "by field": by_field(lr.ASC(), {"price": 0.5}) | lr.Cap(10),
    "by field, weighed": by_field(GATED, {}),
    **{f"reasc by {name}": rule for name, rule in other_weights(REASC).items()},
    **other_rules(),
}


def stream(seed: int) -> list[Response]:
    """Up to 8 responses, or 16: easy, hard or hopeless; a third of the streams with kinds, a third with fields."""
    rng = random.Random(seed)
    size, spread = rng.randint(1, 16 if seed % 5 == 0 else 8), rng.choice([1, 2, 3, 6])
    kinds = [None, "search", "buy"] if seed % 3 == 1 else [None]
    responses = []
    for _ in range(size):
        answer = rng.choice([*"aaab", *"abcdef"[:spread], *([None] if seed % 4 == 3 else [])])
        kind = rng.choice(kinds) if answer else None
        fields = None
        if seed % 3 == 2 and answer:
            fields = {"name": json.dumps(answer), "price": str(rng.choice([1, 1.4, 2, 2.2, "null"]))}
            if rng.random() < 0.2:
                del fields["price"]
            answer = json.dumps(fields, sort_keys=True)
        score = abs(round(rng.gauss(1.4 if answer == "a" else 0.9, 0.5), 3))
        responses.append(
            Response(answer, score, rng.random() < 0.1, kind, fields, not_voted=seed % 7 == 6 and rng.random() < 0.1)
        )
    return responses


STREAMS = [stream(seed) for seed in range(300)]


def rounded(value: Any) -> Any:
    """Floats to nine digits, as the golden files have them."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return float(f"{value:.9g}") if isinstance(value, float) else value


@pytest.mark.parametrize("name", RULES)
def test_decisions(name: str, golden: Callable[..., None]) -> None:
    rule, digest, stops = RULES[name], hashlib.sha256(), []
    step = 3 if set(name) & set("|&_") else 1
    for responses in STREAMS[::step]:
        for n in range(len(responses) + 1):
            after = decide(rule, responses[:n])
            digest.update(repr(rounded(decided(after))).encode())
            if after.stop:
                break
        assert decide(rule, responses) == after
        digest.update(repr([rounded(one) for one in rule.weights(responses)]).encode())
        stops.append(f"{after.samples}{(after.reason or '-')[0]}")
    readable = {seed: decided(decide(rule, STREAMS[seed])) for seed in (4, 5)}
    accepts_first = rule.first_wave == 1 and not isinstance(rule, lr.Cap)
    about = {"accepts first": accepts_first, "reads scores": rule.reads_scores}
    if not name.startswith("by field"):
        about["name"] = rule.name
    golden({**about, "sha256": digest.hexdigest(), "stops": " ".join(stops), "some": readable})


def _decided(rule: Any, responses: list[Response]) -> Any:
    return decided(decide(rule, responses))


def test_a_missing_score_is_refused_or_counted(golden: Callable[..., None]) -> None:
    unscored = [Response("a"), Response("a", 1.5), Response("b", 0.5)]
    golden({name: raised(partial(_decided, rule, unscored)) for name, rule in RULES.items()})


SIGNALS = {
    "self_certainty": [((i * 37) % 101) / 10 for i in range(300)],
    "token_logprob": [-(i % 7) / 9 for i in range(40)],
}


def test_measures(golden: Callable[..., None]) -> None:
    scores = ["bottom_group", "mean", "tail_group", "average_group", "lowest_group"]
    values = {}
    for signal in SIGNALS:
        for score in scores:
            for window in (8, 32, 128, 301):
                measure = lr.Measure(signal, score, window)
                values[str(measure)] = measure(SIGNALS)
    golden(values)
