"""Throw mutated payloads at the reader of log-probabilities: ``python -m benchmarks.fuzz_logprobs --count 1000000``.

Each payload is a sound one in the shape of some provider, with up to four of its nodes replaced, dropped, doubled or
moved, and at times all its numbers made the same. Two things may come of it: one of the library's own errors, or
signals of which every number was in the payload. Anything else is printed with what reproduces it, and the exit code
is 1.
"""

import argparse
import copy
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
from langchain_core.messages import AIMessage

from langchain_reasc.exceptions import ReASCError
from langchain_reasc.method.confidence import response_score
from langchain_reasc.models import SignalReading, count_tokens, read_signals
from langchain_reasc.models.payloads import FLOOR
from tests.models.logprobs.payloads import Position, arrays, entries, gemini, objects

Random = random.Random
Reader = Callable[[AIMessage], SignalReading]
WORDS = ("the", " answer", " is", " 4", "2", ".", " naïve", " →", "▁so", "")
ODD: tuple[Any, ...] = (
    *(None, math.nan, math.inf, -math.inf, -9999.0, -100.0, -1000, -3.4028234663852886e38, 0, 0.0, -0.0, 1e-6, 0.5, 7),
    *(1e308, 10**400, -(10**400), True, False, "", "x", "NaN", "-Infinity", "-0.25", b"-1", object(), 1j),
    *([], {}, [None], [[]], {"logprob": None}, {"token": "x"}, [{"logprob": -1.0}], "[]", range(3), np.float32(-0.5)),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000, help="payloads")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    started = time.monotonic()
    outcomes, faults = fuzz(options.count, options.seed)
    for fault in faults:
        print(fault)
    for outcome, count in outcomes.most_common():
        print(f"{count:>9,}  {count / options.count:6.1%}  {outcome}")
    print(
        f"{options.count:>9,} payloads, seed {options.seed}, {time.monotonic() - started:.0f} s: {len(faults)} faults"
    )
    return 1 if faults else 0


def fuzz(count: int, seed: int, *, read: Reader = read_signals) -> tuple[Counter[str], list[str]]:
    """Outcome -> how often, and a line for each payload that was handled wrongly by ``read``."""
    outcomes: Counter[str] = Counter()
    faults: list[str] = []
    for at in range(count):
        message = mutated(Random(seed << 40 | at))
        try:
            outcome, wrong = judged(message, read)
        except Exception as error:
            outcome, wrong = "crash", repr(error)
        outcomes[outcome] += 1
        if wrong:
            faults.append(f"fault: payload {at}, seed {seed}: {wrong}: {message.response_metadata!r:.2000}")
    return outcomes, faults


def judged(message: AIMessage, read: Reader) -> tuple[str, str]:
    """What came of a response, and what is wrong with that (empty if nothing is)."""
    try:
        reading = read(message)
        for values in reading.signals.values():
            response_score(values)
    except ReASCError as error:
        return f"refused: {type(error).__name__}", "" if str(error) else "an error that says nothing"
    wrong = "" if "token_signals" in message.response_metadata else made_up(message, reading)
    return "read, with a notice" if reading.notices else "read", wrong


def made_up(message: AIMessage, reading: SignalReading) -> str:
    """What of these signals is not in the payload."""
    signals, notices = reading.signals, " ".join(reading.notices)
    chosen = [round(float(value), 9) for value in signals["token_logprob"]]
    there = Counter(numbers(message.response_metadata))
    invented = Counter(chosen) - there
    top_k, negentropy = (signals.get(name, np.zeros(0)) for name in ("top_k", "neg_entropy"))
    least = min([*there, *([FLOOR] if "taken as" in notices or "no 'top_k'" in notices else [])], default=0.0)
    faults = {
        f"token log-probabilities that are not in the payload: {dict(invented)}": bool(invented),
        "signals of different lengths, or of no token": not chosen
        or any(len(values) not in (0, len(chosen)) for values in (top_k, negentropy)),
        "tokens were left out without a notice": not notices and count_tokens(message.response_metadata) > len(chosen),
        "a certainty made of zeros": len(chosen) > 1 and not any(chosen) and not top_k.any(),
        f"top_k of {top_k.min(initial=0)} to {top_k.max(initial=0)}": not (top_k >= 0).all()
        or not (-top_k >= least - 1e-6).all(),
        f"neg_entropy of {negentropy}": not ((negentropy >= -math.log(64)) & (negentropy <= 1e-9)).all(),
    }
    return next((fault for fault, found in faults.items() if found), "")


def numbers(node: Any) -> Iterator[float]:
    """Every number of a payload that can be a log-probability."""
    if isinstance(node, SimpleNamespace):
        node = vars(node)
    if isinstance(node, dict):
        node = [value for name, value in node.items() if name != "bytes"]
    if isinstance(node, list | tuple | range):
        for value in node:
            yield from numbers(value)
    elif isinstance(node, int | float | str | np.number) and not isinstance(node, bool):
        with suppress(ValueError, OverflowError):
            if FLOOR <= (value := float(node)) <= 1e-3:
                yield round(min(value, 0.0), 9)


def mutated(rng: Random) -> AIMessage:
    """A response whose payload was sound once."""
    texts = [rng.choice(WORDS) for _ in range(rng.choice((1, 2, 2, 3, 3, 4, 6, 12, 24)))]
    k = rng.choice((0, 1, 2, 4))
    metadata = rng.choice(SHAPES)([position(text, k, rng) for text in texts], rng)
    for _ in range(rng.choice((0, 1, 1, 2, 3, 4))):
        mutate(metadata, rng)
    if rng.random() < 0.1:
        metadata = uniform(metadata, copy.copy(rng.choice(ODD)))
    if rng.random() < 0.1:
        metadata = {name: objects(value) for name, value in metadata.items()}
    return AIMessage("".join(texts) if rng.random() < 0.5 else "", response_metadata=metadata)


def mutate(root: dict[str, Any], rng: Random) -> None:
    """Change one node, at any depth."""
    node: Any = root
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return
        key = rng.choice(keys)
        child = node[key]
        if not isinstance(child, dict | list) or not child or rng.random() < 0.2:
            _change(node, key, rng.choice(("replace", "replace", "drop", "double", "move")), rng)
            return
        node = child


def _change(node: Any, key: Any, how: str, rng: Random) -> None:
    if how == "replace":
        node[key] = copy.copy(rng.choice(ODD))
    elif how == "drop":
        del node[key]
    elif how == "move":
        other = rng.choice(list(node) if isinstance(node, dict) else range(len(node)))
        node[key], node[other] = node[other], node[key]
    elif isinstance(node, list):
        node.insert(key, copy.copy(node[key]))
    else:
        node[f"{key}_again"] = node[key]


def uniform(node: Any, value: Any) -> Any:
    """The payload of a server that writes one thing for every log-probability."""
    if isinstance(node, list):
        return [uniform(one, value) for one in node]
    if isinstance(node, dict):
        return {name: uniform(one, value) for name, one in node.items()}
    return value if isinstance(node, float) else node


def position(text: str, k: int, rng: Random) -> Position:
    """A sound token, its log-probability, and its k alternatives (k + 1 if it is none of them), summing to 1."""
    weights = [rng.expovariate(1) ** 4 + 1e-9 for _ in range(k + 2)]
    logs = sorted((math.log(weight / sum(weights)) for weight in weights), reverse=True)
    at = rng.choice((0, 0, 0, min(1, k), k + 1))
    ranked = [(text if index == at else f"{text}{index}", value) for index, value in enumerate(logs[:k])]
    if at > k and ranked and rng.random() < 0.5:
        ranked.append((text, logs[at]))
    return text, logs[at], ranked


def entries_of(positions: Sequence[Position], rng: Random) -> list[dict[str, Any]]:
    """Tokens as OpenAI's chat API gives them, at times with their bytes."""
    found = entries(positions)
    for one in found:
        one["bytes"] = list(one["token"].encode()) if rng.random() < 0.3 else None
        one["top_logprobs"] = [other | {"bytes": None} for other in one["top_logprobs"]]
    return found


def recorded(positions: Sequence[Position]) -> dict[str, Any]:
    """Token signals as our own backends record them."""
    return {name: [logprob for _, logprob, _ in positions] for name in ("top_k", "token_logprob")}


SHAPES: tuple[Callable[[Sequence[Position], Random], dict[str, Any]], ...] = (
    lambda at, rng: {"logprobs": {"content": entries_of(at, rng), "refusal": None}},
    lambda at, rng: {"logprobs": {"content": None, "refusal": entries_of(at, rng)}},
    lambda at, rng: {"logprobs": arrays(at)},
    lambda at, rng: {"logprobs": {"content": None, "token_ids": [1] * len(at), **arrays(at)}},
    lambda at, rng: {"logprobs": entries_of(at, rng)},
    lambda at, rng: {"logprobs_result": entries_of(at, rng), "avg_logprobs": -0.5},
    lambda at, rng: {"logprobs_result": gemini("logProbability", "chosenCandidates", "topCandidates", at)},
    lambda at, rng: {"token_signals": recorded(at), "token_signals_info": {"top_k": rng.randrange(5)}},
)


if __name__ == "__main__":
    sys.exit(main())
