"""All methods at three difficulties: ``python -m benchmarks.difficulty``.

The savings of a stopping rule depend on how often the model is right, and papers report models that nearly always are.
So the shipped model answers new word problems of three difficulties 16 times each. They differ in the number of steps
and in the size of their numbers. The model was not trained on their chains of events, and none of them is shipped. All
methods are then replayed over shuffles of the questions; 128 labelled questions calibrate the methods that need labels.

python -m benchmarks.difficulty                                    128 tested questions each, 4 shuffles
python -m benchmarks.difficulty --questions 384 --shuffles 10      the table in docs/measured.md
python -m benchmarks.difficulty one.sqlite another.sqlite          pools of your own, beside each other
"""

import importlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Final

from langchain_reasc_lab.pools import MeasureSpec, Pool, read_pool, record_pool
from langchain_reasc_lab.replay import MethodSettings, replay, summarize
from langchain_reasc_lab.replay.metrics import Row
from langchain_reasc_llama_cpp import ChatLlamaCpp
from rich.console import Console
from rich.progress import track

from benchmarks.command import parser_of
from langchain_reasc.data import LabelledQuestion

DIFFICULTIES: Final[dict[str, Sequence[tuple[int, int]]]] = {
    "easy": ((1, 2), (1, 3), (2, 2), (2, 3), (3, 2)),
    "medium": ((2, 4), (3, 3), (4, 2), (4, 3)),
    "hard": ((3, 4), (4, 4), (4, 5), (5, 2)),
}
"""Name -> the (level, steps) of its problems, by turns: pass@1 of about .95, .8 and .6.
"""
CALIBRATION: Final = 128
_EXAMPLE: Final = Path(__file__).parents[1] / "examples" / "word_problems"


def word_problems(
    difficulty: str, count: int, *, seed: int = 0
) -> list[LabelledQuestion]:
    """Return different problems of one difficulty; the same seed gives the same ones,
    and more begin with fewer.
    """
    return list(islice(_generated(difficulty, seed), count))


def _generated(difficulty: str, seed: int) -> Iterator[LabelledQuestion]:
    sys.path.append(str(_EXAMPLE))
    problems = importlib.import_module("problems").problems
    cells = DIFFICULTIES[difficulty]
    streams = {
        level: problems(f"{difficulty}:{seed}:{level}", {level: 1.0}, "dev")
        for level, _ in cells
    }
    seen: set[str] = set()
    for level, steps in cycle(cells):
        made = next(
            one
            for one in streams[level]
            if one.steps == steps and one.question not in seen
        )
        seen.add(made.question)
        yield LabelledQuestion(
            f"{difficulty}-{len(seen):04d}", made.question, str(made.answer)
        )


def recorded(
    difficulty: str, count: int, folder: Path, *, seed: int = 0, samples: int = 16
) -> Pool:
    """Return the shipped model's responses to that many problems, adding to what the
    folder already holds.
    """
    questions = word_problems(difficulty, count, seed=seed)
    folder.mkdir(parents=True, exist_ok=True)
    with ChatLlamaCpp(seed=seed, n_parallel=16) as model:
        pool = record_pool(
            model, questions, folder / f"{difficulty}-{seed}.sqlite", samples=samples
        )
    ids = {question.id for question in questions}
    return replace(
        pool,
        questions=tuple(question for question in pool.questions if question.id in ids),
    )


def compared(
    pool: Pool, *, shuffles: int, calibration: int = CALIBRATION, seed: int = 0
) -> list[Row]:
    """Return a row for every method, on the measure that is chosen where it may choose."""
    budget = max(len(question.responses) for question in pool.questions)
    settings = MethodSettings(max_samples=min(budget, 16), seed=seed)
    measures: list[MeasureSpec] = (
        ["auto"] if pool.signals and pool.signals.names else []
    )
    run = replay(
        pool,
        measures,
        shuffles=shuffles,
        seed=seed,
        calibration_size=calibration,
        settings=settings,
        rules="all",
    )
    return summarize(run)


def table(found: dict[str, list[Row]]) -> str:
    """Return the tokens of each method on each pool, relative to ASC's, and its
    accuracy minus ASC's, as Markdown.
    """
    by_name = {pool: {row.method: row for row in rows} for pool, rows in found.items()}
    head = [f"{pool}: tokens ÷ ASC | Δ, points" for pool in found]
    lines = [f"| method | {' | '.join(head)} |", f"|---|{'---:|---|' * len(found)}"]
    for name in dict.fromkeys(name for rows in by_name.values() for name in rows):
        lines.append(
            f"| {name} | "
            f"{' | '.join(_cell(rows.get(name)) for rows in by_name.values())} |"
        )
    return "\n".join(lines)


def _cell(row: Row | None) -> str:
    if row is None:
        return "- | -"
    points = row.accuracy_vs_asc.percent
    return (
        f"{row.tokens_vs_asc.value:.2f} | {points.value:+.1f} {points.interval('+.1f')}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print how difficult each pool is, and the table."""
    parser = parser_of("difficulty", __doc__)
    parser.add_argument(
        "pools",
        nargs="*",
        type=Path,
        help="recorded pools instead of new word problems",
    )
    parser.add_argument(
        "--questions",
        type=int,
        default=128,
        help="tested in each arrangement (%(default)s)",
    )
    parser.add_argument(
        "--calibration",
        type=int,
        default=CALIBRATION,
        help="others that calibrate (%(default)s)",
    )
    parser.add_argument(
        "--shuffles", type=int, default=4, help="rearrangements (%(default)s)"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="of the problems, the responses and the shuffles",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("difficulty-pools"),
        help="where pools are kept",
    )
    given = parser.parse_args(arguments)
    console = Console(stderr=True)
    found: dict[str, list[Row]] = {}
    for source in track(
        given.pools or list(DIFFICULTIES),
        "Pools",
        console=console,
        disable=not console.is_terminal,
    ):
        if isinstance(source, Path):
            name, pool = str(source), read_pool(source)
        else:
            name = source
            pool = recorded(
                source,
                given.questions + given.calibration,
                given.folder,
                seed=given.seed,
            )
        found[name] = compared(
            pool,
            shuffles=given.shuffles,
            calibration=given.calibration,
            seed=given.seed,
        )
        once, asc = (
            100 * row.accuracy.value
            for row in found[name]
            if row.method in ("pass@1", "ASC")
        )
        print(
            f"{name}: {len(pool.questions)} questions; pass@1 {once:.1f} %, ASC "
            f"{asc:.1f} %"
        )
    print(f"\n{table(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
