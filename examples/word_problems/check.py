"""Print every figure of the model card: run the shipped model through llama.cpp on its
held-out test problems.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from langchain_reasc_llama_cpp import ChatLlamaCpp
from problems import LEVELS, SPLITS, problems, split_of
from rich.progress import track
from sklearn.metrics import roc_auc_score

from langchain_reasc.method.confidence import SCORES, response_score
from langchain_reasc.method.token_signals import SIGNALS

EMBEDDED = Path(__file__).parents[2] / "backends/langchain_reasc_llama_cpp/embedded"
WINDOWS = (8, 16, 32, 128)
Row = dict[str, Any]
Numbers = npt.NDArray[np.float64]


def read(path: Path) -> list[Row]:
    """The rows of a JSON Lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def describe_file(path: Path) -> None:
    """Print size, parameters and sampling parameters of a GGUF."""
    reader = gguf.GGUFReader(path)
    parameters = sum(int(tensor.n_elements) for tensor in reader.tensors)
    print(f"{path.name}: {parameters:,} parameters, {path.stat().st_size:,} bytes")
    sampling = {
        key: field.contents()
        for key, field in reader.fields.items()
        if key.startswith("reasc.sampling.")
    }
    print(
        "shipped sampling parameters:",
        ", ".join(f"{k.rsplit('.', 1)[1]} {v:g}" for k, v in sampling.items()),
    )


def prove_disjoint(folder: Path, *, size: int = 100_000) -> None:
    """Print that no held-out skeleton is one that training could have drawn, nor one
    that it did draw.
    """
    held = {
        split: {row["skeleton"] for row in read(folder / f"{split}.jsonl")}
        for split in ("calibration", "test")
    }
    stream = problems("disjoint", dict.fromkeys(LEVELS, 1.0), "train")
    trained = {problem.skeleton for problem in islice(stream, size)}
    for split, skeletons in held.items():
        wrong = [skeleton for skeleton in skeletons if split_of(skeleton) != split]
        print(
            f"{split}: {len(skeletons)} skeletons, {len(wrong)} outside the hash "
            f"buckets {list(SPLITS[split])}, {len(skeletons & trained)} among the "
            f"{len(trained):,} of {size:,} training problems"
        )
    print(
        f"calibration and test share {len(held['calibration'] & held['test'])} "
        "skeletons"
    )


def interval(
    values: Numbers,
    statistic: Callable[[Numbers], float] = np.mean,
    *,
    resamples: int = 2000,
) -> str:
    """A statistic over problems (first axis) with its 95 % bootstrap interval."""
    rng = np.random.default_rng(0)
    drawn = [
        statistic(values[rng.integers(0, len(values), len(values))])
        for _ in range(resamples)
    ]
    low, high = np.percentile(drawn, (2.5, 97.5))
    return f"{statistic(values):.3f} [{low:.3f}, {high:.3f}]"


def majority(answers: list[str | None]) -> str | None:
    """The most frequent answer; ties go to the one seen first."""
    votes = Counter(answer for answer in answers if answer is not None)
    return votes.most_common(1)[0][0] if votes else None


def figures(
    rows: list[Row], answers: list[list[str | None]], tokens: Numbers
) -> npt.NDArray[np.bool_]:
    """Print accuracies and lengths, whole and by level; returns which responses are
    right, shape (problems, n).
    """
    right = np.array(
        [
            [a == row["answer"] for a in given]
            for row, given in zip(rows, answers, strict=True)
        ]
    )
    voted = np.array(
        [
            majority(given) == row["answer"]
            for row, given in zip(rows, answers, strict=True)
        ]
    )
    n = right.shape[1]
    first, vote = right.mean(axis=1), voted.astype(float)
    print(
        f"\npass@1  {interval(first)}\nSC@{n}   {interval(vote)}\ngain    "
        f"{interval(vote - first)}"
    )
    print(
        "responses without an answer: "
        f"{np.mean([a is None for given in answers for a in given]):.4f}"
    )
    levels = np.array([row["level"] for row in rows])
    print("\nlevel  problems  pass@1   SC  tokens mean (5 % to 95 %)")
    for level in np.unique(levels):
        at = levels == level
        low, high = np.percentile(tokens[at], (5, 95))
        lengths = f"{tokens[at].mean():.0f} ({low:.0f} to {high:.0f})"
        print(
            f"{level:5d} {at.sum():9d} {first[at].mean():7.3f} {vote[at].mean():.3f}  "
            f"{lengths}"
        )
    return right


def separation(
    right: npt.NDArray[np.bool_],
    tokens: Numbers,
    signals: list[list[dict[str, Numbers]]],
) -> None:
    """Print how well each signal, score and window, and length alone, tell right
    responses from wrong ones.
    """
    truth = right.ravel()
    length = roc_auc_score(truth, -tokens.ravel())
    print(
        f"\nAUROC over {truth.size:,} responses; of length alone (short is right): "
        f"{length:.3f}"
    )
    print(
        "signal          score          "
        + "".join(f"  W={window:<4d}" for window in WINDOWS)
    )
    for signal in SIGNALS:
        for score in SCORES:
            cells = []
            for window in WINDOWS if score != "mean" else WINDOWS[:1]:
                values = [
                    response_score(s[signal], score=score, window=window)
                    for row in signals
                    for s in row
                ]
                cells.append(f"{roc_auc_score(truth, values):8.3f}")
            print(f"{signal:15s} {score:15s}" + "".join(cells))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--folder",
        type=Path,
        default=EMBEDDED,
        help="holds word_problems.gguf and the two .jsonl",
    )
    parser.add_argument(
        "--problems",
        type=int,
        default=None,
        help="only the first so many test problems",
    )
    parser.add_argument(
        "--samples", type=int, default=16, help="responses to each problem"
    )
    options = parser.parse_args()
    describe_file(options.folder / "word_problems.gguf")
    prove_disjoint(options.folder)
    rows = read(options.folder / "test.jsonl")[: options.problems]
    model = ChatLlamaCpp(model_path=options.folder / "word_problems.gguf")
    answers: list[list[str | None]] = []
    signals: list[list[dict[str, Numbers]]] = []
    for number, row in enumerate(track(rows, description="sampling")):
        # Other seeds for each problem: with the same ones, first responses would all
        # come in the same style.
        with model.sample(
            row["question"], n=options.samples, seed=1000 * number
        ) as stream:
            messages = [
                message for _, message in sorted(stream, key=lambda pair: pair[0])
            ]
        found = [
            re.findall(r"\\boxed\{([^}]*)\}", message.text) for message in messages
        ]
        answers.append([each[-1] if each else None for each in found])
        signals.append(
            [message.response_metadata["token_signals"] for message in messages]
        )
    tokens = np.array(
        [[len(s[SIGNALS[0]]) for s in row] for row in signals], dtype=float
    )
    separation(figures(rows, answers, tokens), tokens, signals)


if __name__ == "__main__":
    main()
