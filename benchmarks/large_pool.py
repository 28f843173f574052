"""What a large pool costs on disk, in time and in memory: ``python -m benchmarks.large_pool --questions 125 1000``.

Pools of so many questions, with 16 responses of 2,000 tokens to each, their text and 5 signals, are written question by
question, as a recording does, and then read, calibrated on and replayed by the commands, each in a process of its own.
1,000 questions are 1 GB. A line at the end says what they tell of 100,000.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from langchain_reasc_lab.pools import Message, PoolQuestion, PoolResponse, PoolStore
from langchain_reasc_lab.pools.merging import WholeQuestion
from langchain_reasc_lab.pools.store import TokenSignals
from rich.console import Console
from rich.table import Table

from benchmarks.command import parser_of
from langchain_reasc.method.token_signals import SIGNALS

SAMPLES: Final = 16
TOKENS: Final = 2000
_WORDS: Final = ("so", "the", "sum", "of", "both", "sides", "is", "then", "twice", "what", "we", "had", "before", "and")
_MILLION: Final = 1e6
_LARGE: Final = 100_000
_PROGRAM: Final = """
import sys
{work}
peak = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]  # of this process alone
print(int(peak[0].split()[1]) * 1024, file=sys.stderr)
"""
_WRITE: Final = """
from pathlib import Path
from benchmarks.large_pool import write
write(Path(sys.argv[1]), int(sys.argv[2]), tokens=int(sys.argv[3]))
"""
_READ: Final = "from langchain_reasc_lab.pools import read_pool; read_pool(sys.argv[1])"
_COMMAND: Final = """
HALF = ['--calibration-size', str(min(128, int(sys.argv[2]) // 2))]
from langchain_reasc.cli import app
if code := app([{arguments}], standalone_mode=False):
    sys.exit(code)
"""
STEPS: Final = {
    "write": _WRITE,
    "read": _READ,
    "replay, one signal": _COMMAND.format(arguments="'replay', sys.argv[1], '--signal', 'token_logprob', *HALF"),
    "replay, auto": _COMMAND.format(arguments="'replay', sys.argv[1], *HALF"),
    "replay, 3 shuffles": _COMMAND.format(arguments="'replay', sys.argv[1], '--shuffles', '3', *HALF"),
    "calibrate": _COMMAND.format(
        arguments="'pool', 'calibrate', sys.argv[1], '--limit', sys.argv[2], '--out', sys.argv[1] + '.json'"
    ),
}
"""What is measured -> a program that does it, given pool, questions and tokens."""


def write(path: Path, questions: int, *, tokens: int = TOKENS, samples: int = SAMPLES) -> Path:
    """Write such a pool, question by question."""
    store = PoolStore.create(path)
    for question in questions_of(questions, tokens=tokens, samples=samples):
        store.add_question(*question)
    store.close()
    return path


def questions_of(
    questions: int, *, tokens: int = TOKENS, samples: int = SAMPLES, seed: int = 0
) -> Iterator[WholeQuestion]:
    """Yield questions whose right answers are a little more confident, with texts and all signals."""
    rng = np.random.default_rng(seed)
    words = np.array(_WORDS)
    for number in range(questions):
        able = rng.beta(2, 1.3)
        responses, messages, signals = [], [], list[TokenSignals]()
        for _ in range(samples):
            right, length = bool(rng.random() < able), int(rng.integers(tokens * 9 // 10, tokens * 11 // 10 + 1))
            spelled = rng.choice(words, length)
            held = rng.standard_normal((len(SIGNALS), length), dtype=np.float32) + np.float32(0.1 * right)
            responses.append(
                PoolResponse(
                    answer="7" if right else str(rng.integers(1, 5)),
                    completion_tokens=length,
                    prompt_tokens=80,
                    finish_reason="stop",
                    seconds=float(rng.random()),
                    score=float(held[0].mean()),
                    answer_span=(length - 2, length - 1),
                    last_step=(max(0, length - 30), length - 2),
                )
            )
            lengths = [len(word) + 1 for word in spelled.tolist()]
            messages.append(Message(" ".join(spelled), None, {"output_tokens": length}, lengths))
            signals.append(dict(zip(SIGNALS, held, strict=True)))
        asked = f"What is the sum of the numbers in list {number}?"
        yield PoolQuestion(f"q{number:06}", ("7",), tuple(responses), asked), messages, signals


@dataclass(frozen=True, slots=True)
class Step:
    """What one step took.

    Attributes:
        name: of :data:`STEPS`.
        questions: of the pool.
        seconds: of the whole process, its imports included.
        peak: bytes of memory at most.
    """

    name: str
    questions: int
    seconds: float
    peak: int


def measured(
    pool: Path, questions: int, *, tokens: int = TOKENS, steps: Iterable[str] = tuple(STEPS)
) -> Iterator[Step]:
    """Do each step on a pool, in a process of its own."""
    for name in steps:
        began = time.perf_counter()
        program = _PROGRAM.format(work=STEPS[name])
        arguments = [str(pool), str(questions), str(tokens)]
        done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{name} of {questions} questions failed:\n{done.stderr[-2000:]}")
        yield Step(name, questions, time.perf_counter() - began, int(done.stderr.split()[-1]))


def slope(steps: Sequence[Step]) -> float:
    """By how many bytes a step's peak grows with each response, from the smallest to the largest pool."""
    small, large = min(steps, key=lambda step: step.questions), max(steps, key=lambda step: step.questions)
    return (large.peak - small.peak) / max(1, large.questions - small.questions) / SAMPLES


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for."""
    given = _parser().parse_args(arguments)
    sizes: dict[int, int] = {}
    found: list[Step] = []
    for questions in given.questions:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            pool = Path(folder, "pool.sqlite")
            for step in measured(pool, questions, tokens=given.tokens, steps=["write", *given.steps]):
                found.append(step)
                print(json.dumps({"step": step.name, "questions": questions, "peak": step.peak}), file=sys.stderr)
                sizes.setdefault(questions, sum(file.stat().st_size for file in Path(folder).iterdir()))
    console = Console(width=80, highlight=False)
    console.print(_table(sizes, found))
    for line in _told(sizes, found):
        console.print(line)
    return 0


def _table(sizes: dict[int, int], found: Sequence[Step]) -> Table:
    table = Table(box=None, pad_edge=False, title_justify="left", title="seconds / peak memory, MB")
    table.add_column("questions (on disk)")
    for questions, size in sizes.items():
        table.add_column(f"{questions:,} ({size / _MILLION:,.0f} MB)", justify="right")
    for name in dict.fromkeys(step.name for step in found):
        cells = [step for step in found if step.name == name]
        table.add_row(name, *(f"{step.seconds:.1f} / {step.peak / _MILLION:,.0f}" for step in cells))
    return table


def _told(sizes: dict[int, int], found: Sequence[Step]) -> Iterator[str]:
    """What the largest pool, and the growth up to it, tell of a hundred thousand questions."""
    most = max(sizes)
    yield f"\n{_LARGE:,} questions would have {sizes[most] / most * _LARGE / 1e9:,.0f} GB on disk, and take"
    for name in dict.fromkeys(step.name for step in found):
        steps = [step for step in found if step.name == name]
        last = next(step for step in steps if step.questions == most)
        minutes = last.seconds / most * _LARGE / 60
        yield f"  {name}: {minutes:,.0f} minutes at most" + (_grown(steps, last) if len(steps) > 1 else "")


def _grown(steps: Sequence[Step], last: Step) -> str:
    grows = max(0.0, slope(steps))
    peak = (last.peak + grows * SAMPLES * (_LARGE - last.questions)) / 1e9
    return f", {peak:.1f} GB of memory ({grows:,.0f} bytes a response)"


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("large_pool", __doc__)
    parser.add_argument("--questions", type=int, nargs="+", default=[250, 1000], help="sizes of pools (%(default)s)")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="of each response (%(default)s)")
    others = [name for name in STEPS if name != "write"]
    parser.add_argument(
        "--steps", nargs="+", choices=others, default=others, help="only these: %(choices)s", metavar="STEP"
    )
    parser.add_argument("--folder", help="where the pools lie while they are measured")
    return parser


if __name__ == "__main__":
    sys.exit(main())
