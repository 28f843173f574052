"""Write the held-out problems that are shipped with the model: calibration.jsonl and test.jsonl."""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from pathlib import Path

from problems import problems

SIZES = {"calibration": 256, "test": 640}
# Many problems that the model always solves, and many that it solves now and then.
LEVEL_MIX = {1: 3.0, 2: 2.0, 3: 1.0, 4: 1.0, 5: 1.0}
MOST_PER_SKELETON = 6


def write(path: Path, split: str, size: int) -> None:
    """Write `size` different problems of one split, at most a few of each skeleton."""
    rows: list[str] = []
    seen: set[str] = set()
    used: Counter[str] = Counter()
    for problem in problems(f"shipped:{split}", LEVEL_MIX, split):
        if len(rows) == size:
            break
        if problem.question in seen or used[problem.skeleton] == MOST_PER_SKELETON:
            continue
        seen.add(problem.question)
        used[problem.skeleton] += 1
        row = {"id": f"{split}-{len(rows):04d}", "question": problem.question, "answer": str(problem.answer)}
        rows.append(json.dumps(row | {"level": problem.level, "skeleton": problem.skeleton}))
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
    parser.add_argument("--out", type=Path, required=True, help="the folder to write to")
    options = parser.parse_args()
    for split, size in SIZES.items():
        write(options.out / f"{split}.jsonl", split, size)


if __name__ == "__main__":
    main()
