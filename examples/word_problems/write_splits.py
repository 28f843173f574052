"""Write the held-out problems that are shipped with the model: calibration.jsonl and
test.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from pathlib import Path
from random import Random

from problems import LEVELS, problems

SIZES = {"calibration": 256, "test": 640}
# (level, steps) -> weight: many problems that the model always solves, short and long,
# and many that it solves now and then. Chosen on the dev split.
MIX = {
    **{(1, 1): 2.0, (1, 2): 2.0, (1, 3): 2.0},
    **{(2, 1): 1.0, (2, 2): 2.0, (2, 3): 4.0, (2, 4): 3.0},
    **{(3, 2): 3.0, (3, 3): 2.0, (3, 4): 7.0},
    **{(4, 3): 2.0, (4, 4): 4.0, (4, 5): 8.0},
    **{(5, 1): 2.0, (5, 2): 7.0, (5, 3): 6.0, (5, 4): 3.0},
}
MOST_PER_SKELETON = 12


def write(path: Path, split: str, size: int) -> None:
    """Write `size` different problems of one split, at most a few of each skeleton."""
    rng = Random(f"cells:{split}")
    streams = {
        level: problems(f"shipped:{split}:{level}", {level: 1.0}, split)
        for level in LEVELS
    }
    rows: list[str] = []
    seen: set[str] = set()
    used: Counter[str] = Counter()
    while len(rows) < size:
        level, steps = rng.choices(list(MIX), list(MIX.values()))[0]
        problem = next(p for p in streams[level] if p.steps == steps)
        if problem.question in seen or used[problem.skeleton] == MOST_PER_SKELETON:
            continue
        seen.add(problem.question)
        used[problem.skeleton] += 1
        row = {
            "id": f"{split}-{len(rows):04d}",
            "question": problem.question,
            "answer": str(problem.answer),
        }
        rows.append(json.dumps(row | {"level": level, "skeleton": problem.skeleton}))
    temporary = path.with_suffix(".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write("\n".join(rows) + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    print(f"{path}: {len(rows)} problems, {len(used)} skeletons")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out", type=Path, required=True, help="the folder to write to"
    )
    options = parser.parse_args()
    for split, size in SIZES.items():
        write(options.out / f"{split}.jsonl", split, size)


if __name__ == "__main__":
    main()
