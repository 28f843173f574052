"""Two recordings of the same made-up questions: a small model's and a large one's."""

from pathlib import Path
from typing import Any

import numpy as np
from langchain_reasc_lab.escalation import Pair, join
from langchain_reasc_lab.pools import read_pool

from lab.pools.synthetic import write_lines


def write_pair(
    folder: Path,
    questions: int = 120,
    samples: int = 6,
    *,
    small: tuple[float, float] = (0.98, 0.2),
    large: tuple[float, float] = (0.98, 0.95),
    hard: float = 0.3,
    seed: int = 0,
    scores: bool = False,
    keys: bool = False,
) -> tuple[Path, Path]:
    """Write two pools, and return their paths.

    Args:
        folder: where to write them.
        questions: how many there are.
        samples: responses of each model to each.
        small: how often the small model is right on easy and on hard questions.
        large: the same of the large one.
        hard: the share of hard questions.
        seed: the seed of all.
        scores: whether the small model's scores tell easy questions from hard ones.
        keys: whether ids differ, and question_key is the same.
    """
    rng = np.random.default_rng(seed)
    pools: dict[str, list[dict[str, Any]]] = {"small": [], "large": []}
    for number in range(questions):
        is_hard = bool(rng.random() < hard)
        for name, right in (("small", small), ("large", large)):
            answers = ["7" if rng.random() < right[is_hard] else str(rng.integers(10, 30)) for _ in range(samples)]
            given = [{"answer": one, "completion_tokens": 10} for one in answers]
            if scores and name == "small":
                given = [one | {"score": float(rng.normal(-2.0 if is_hard else 2.0))} for one in given]
            record = {"id": f"q{number}", "reference": "7", "responses": given}
            if keys:
                record |= {"id": f"{name}-{number}", "question_key": f"key {number}"}
            pools[name].append(record)
    one, other = (write_lines(folder / f"{name}.sqlite", *records) for name, records in pools.items())
    return one, other


def made(folder: Path, **how: Any) -> Pair:
    """Return the pair that :func:`write_pair` writes, joined."""
    small, large = (read_pool(path) for path in write_pair(folder, **how))
    return join(small, large, flat=True, measure="recorded" if how.get("scores") else None)
