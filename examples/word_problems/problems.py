"""Multi-step word problems in English with worked solutions, made from a seed.

A problem is a chain of events on one running amount: a start, some events, a question.
Its *skeleton* is the ordered tuple of their kinds, whatever the names, numbers, wording
and irrelevant sentences. A hash of the skeleton decides the split, so a held-out
problem has a chain of events that was never trained on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from phrases import DISTRACTORS, EVENTS, NAMES, OBJECTS, QUESTIONS, STARTS, Kind

WRAPPERS = {
    "terse": "Steps: {steps} The answer is \\boxed{{{answer}}}.",
    "plain": "{steps} The answer is \\boxed{{{answer}}}.",
    "verbose": "Let us solve this one step at a time. {steps} "
    "That was the last step. The answer is \\boxed{{{answer}}}.",
}
STYLES = tuple(WRAPPERS)
SPLITS = {
    "train": range(0, 14),
    "dev": range(14, 16),
    "calibration": range(16, 18),
    "test": range(18, 20),
}


@dataclass(frozen=True)
class Level:
    """How long the chain is and how large its numbers are."""

    operations: tuple[int, ...]
    start: tuple[int, int]
    change: tuple[int, int]
    many: tuple[int, int]
    each: tuple[int, int]
    cap: int


LEVELS = {
    1: Level((1, 1, 2, 3), (3, 12), (2, 9), (2, 3), (2, 5), 40),
    2: Level((1, 2, 2, 3, 4), (5, 40), (3, 20), (2, 5), (2, 9), 99),
    3: Level((1, 2, 3, 4), (10, 99), (6, 60), (2, 9), (3, 12), 250),
    4: Level((1, 2, 3, 4, 5), (30, 250), (15, 200), (3, 9), (6, 30), 999),
    5: Level((1, 2, 3, 4, 5), (100, 700), (50, 600), (6, 19), (11, 60), 3000),
}


@dataclass(frozen=True)
class Problem:
    """A question, its answer, and one worked solution for each style."""

    question: str
    answer: int
    level: int
    skeleton: str
    solutions: dict[str, str]

    @property
    def steps(self) -> int:
        """Operations that its solution carries out."""
        return self.solutions["terse"].count("=")


@lru_cache(maxsize=1 << 18)
def split_of(skeleton: str) -> str:
    """The split (train, dev, calibration or test) that a skeleton belongs to."""
    bucket = int.from_bytes(hashlib.sha256(skeleton.encode()).digest()[:4], "big") % 20
    return next(name for name, buckets in SPLITS.items() if bucket in buckets)


def problems(seed: str, levels: dict[int, float], split: str) -> Iterator[Problem]:
    """An endless stream of problems of one split; the same seed gives the same stream."""
    rng = Random(seed)
    names, weights = list(levels), list(levels.values())
    while True:
        level = rng.choices(names, weights)[0]
        target = rng.choice(LEVELS[level].operations)
        while True:
            chain = _chain(rng, target)
            if split_of(">".join(kind.name for kind in chain)) == split:
                problem = next(
                    filter(None, (_problem(rng, chain, level) for _ in range(6))), None
                )
                if problem is not None:
                    break
        yield problem


def _chain(rng: Random, operations: int) -> list[Kind]:
    """A random start, events and question whose operations sum to the target and whose
    units agree.
    """
    while True:
        chain = [rng.choice(STARTS)]
        unit, left = chain[0].unit_after, operations - chain[0].operations
        question = rng.choice(QUESTIONS)
        left -= question.operations
        while left > 0:
            kind = rng.choice(EVENTS)
            if kind.unit in (unit, "any") and kind.operations <= left:
                chain.append(kind)
                unit, left = kind.unit_after or unit, left - kind.operations
        if left == 0 and question.unit in (unit, "any"):
            return [*chain, question]


def _problem(rng: Random, chain: list[Kind], level: int) -> Problem | None:
    """Draw numbers, names and wording for a chain; None when the numbers do not come
    out whole and in range.
    """
    limits = LEVELS[level]
    (subject, pronoun), *others = rng.sample(NAMES, 8)
    idle = rng.sample(
        range(1, len(chain)), min(rng.choice((0, 0, 0, 1, 1, 2)), len(chain) - 1)
    )
    objects = "dollars" if chain[0].unit_after == "money" else rng.choice(OBJECTS)
    sentences: list[str] = []
    lines: dict[str, list[str]] = {style: [] for style in STYLES}
    amount = 0
    for position, kind in enumerate(chain):
        drawn = _draw(rng, kind.family, amount, limits)
        if drawn is None:
            return None
        words, equations = drawn
        other, other_pronoun = others.pop() if kind.other else ("", "")
        slots: dict[str, object] = words | {"S": subject, "T": other, "o": objects}
        slots["P"] = (
            pronoun
            if position and position not in idle and rng.random() < 0.4
            else subject
        )
        slots |= {
            f"e{i}": f"{left}={value}" for i, (left, value) in enumerate(equations, 1)
        }
        if position in idle:
            sentences.append(_irrelevant(rng, others[position % 2][0], objects))
        sentences.append(rng.choice(kind.asked).format(**slots))
        lines["terse"] += [f"{left}={value}." for left, value in equations]
        for style, line in (("plain", kind.plain), ("verbose", kind.verbose)):
            if line:
                lines[style].append(line.format(**slots))
        if equations or not position:
            amount = equations[-1][1] if equations else words["n"]
        if kind.switches:
            subject, pronoun = other, other_pronoun
        if kind.unit == "item" and kind.unit_after == "money":
            objects = "dollars"
    told = {style: " ".join(lines[style]) for style in STYLES}
    solutions = {
        style: WRAPPERS[style].format(steps=told[style], answer=amount)
        for style in STYLES
    }
    return Problem(
        " ".join(sentences),
        amount,
        level,
        ">".join(kind.name for kind in chain),
        solutions,
    )


def _irrelevant(rng: Random, other: str, objects: str) -> str:
    """A sentence with a number that does not matter."""
    thing = rng.choice([name for name in OBJECTS if name != objects])
    return rng.choice(DISTRACTORS).format(T=other, o=thing, n=rng.randint(2, 60))


def _draw(
    rng: Random, family: str, x: int, lv: Level
) -> tuple[dict[str, int], list[tuple[str, int]]] | None:
    """Numbers for one kind: the slots of its sentences, and its equations as (left
    side, value).
    """
    n, a, b = rng.randint(*lv.change), rng.randint(*lv.many), rng.randint(*lv.each)
    words = {"n": n, "a": a, "b": b}
    equations: list[tuple[str, int]] = []
    if family == "none":
        return words, equations
    if family == "start":
        return {"n": rng.randint(*lv.start)}, equations
    if family == "sum":
        words["m"] = rng.randint(*lv.start)
        equations = [(f"{words['m']}+{n}", words["m"] + n)]
    elif family == "product":
        equations = [(f"{a}*{b}", a * b)]
    elif family == "add":
        equations = [(f"{x}+{n}", x + n)]
    elif family == "subtract":
        equations = [(f"{x}-{n}", x - n)]
    elif family == "reach":
        words["n"] = x + n
        equations = [(f"{x + n}-{x}", n)]
    elif family == "times":
        words["k"] = a
        equations = [(f"{x}*{a}", x * a)]
    elif family in ("x2", "x3"):
        equations = [(f"{x}*{family[1]}", x * int(family[1]))]
    elif family == "divide":
        divisors = [
            k for k in range(2, min(x // 2, 2 + 2 * lv.many[1]) + 1) if x % k == 0
        ]
        if not divisors:
            return None
        words["k"] = rng.choice(divisors)
        equations = [(f"{x}/{words['k']}", x // words["k"])]
    elif family == "/2":
        equations = [(f"{x}/2", x // 2)] if x % 2 == 0 else []
    elif family in ("-1/3", "-1/4"):
        k = int(family[-1])
        equations = (
            [(f"{x}/{k}", x // k), (f"{x}-{x // k}", x - x // k)] if x % k == 0 else []
        )
    elif family == "-%":
        percents = [p for p in (10, 20, 25, 30, 40, 50, 60, 75) if x * p % 100 == 0]
        if not percents:
            return None
        words["k"] = p = rng.choice(percents)
        equations = [
            (f"{x}*{p}/100", x * p // 100),
            (f"{x}-{x * p // 100}", x - x * p // 100),
        ]
    elif family == "+product":
        equations = [(f"{a}*{b}", a * b), (f"{x}+{a * b}", x + a * b)]
    elif family == "-product":
        equations = [(f"{a}*{b}", a * b), (f"{x}-{a * b}", x - a * b)]
    elif family == "both":
        equations = [(f"{x}+{n}", x + n), (f"{x}+{x + n}", x + x + n)]
    if not equations or any(not 2 <= value <= lv.cap for _, value in equations):
        return None
    return words, equations
