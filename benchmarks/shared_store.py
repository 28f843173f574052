"""Whether processes that share what they learn, and are killed at any moment, lose or tear any of it.

python -m benchmarks.shared_store      8 processes of 1,000 questions each, killed 200 times (kill -9)
"""

import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

from benchmarks.command import parser_of
from langchain_reasc.calibration import (
    AnsweredQuestion,
    ConsensusCalibrator,
    Learner,
    ObservationStore,
)
from langchain_reasc.method.confidence import Measure
from langchain_reasc.threads import import_deferred

MEASURE: Final = Measure("token_logprob", "mean")
_RESPONSES: Final = 6
_PAUSE: Final = 0.002  # seconds between two kills, on average


@dataclass(frozen=True)
class Outcome:
    """What a trial left.

    Attributes:
        acknowledged: questions that a process knew to be in the store.
        kills: processes killed.
        seen: questions that the store counts.
        kept: questions that the store holds.
        lost: acknowledged questions that are not among those; None where more came than
            are kept, as then only their count tells, which a question in doubt may
            hide.
        doubled: questions that are there twice.
        calibrated: questions that a calibration on the store is made of.
        seconds: of it all.
    """

    acknowledged: int
    kills: int
    seen: int
    kept: int
    lost: int | None
    doubled: int
    calibrated: int
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether nothing acknowledged was lost, and nothing came twice: of each kill
        one question may be in doubt.
        """
        return (
            not (self.lost or self.doubled)
            and 0 <= self.seen - self.acknowledged <= self.kills
        )


class _Signals:
    """Scores that say something of the answer."""

    def __init__(self, score: float) -> None:
        self._score = score
        self.signals: dict[str, Any] = {}

    def score(self, measure: Measure) -> float:
        return self._score

    def provenance(self, signal: str) -> dict[str, Any]:
        return {"top_k": None, "vocabulary_size": None}


def _learn(path: Path, name: str, questions: range, acknowledge: Connection) -> None:
    """Learn from these questions, and tell which of them is in the store."""
    calibrator = ConsensusCalibrator(path=path, measure=MEASURE)
    for at in questions:
        rng = random.Random(f"{name} {at}")
        answers = tuple(rng.choice((0, 0, 0, 1, 2)) for _ in range(_RESPONSES))
        readings = tuple(
            _Signals(rng.gauss(float(answer == 0), 1.0)) for answer in answers
        )
        calibrator.observe(
            AnsweredQuestion(answers, readings, _RESPONSES, answers[0], f"{name} {at}"),
            learned=False,
        )
        while not calibrator.wait() or calibrator.unsaved:
            calibrator.save()
        acknowledge.send(at)


class _Worker:
    """A process that begins again behind what it has acknowledged, each time under
    another name.
    """

    def __init__(self, number: int, path: Path, questions: int) -> None:
        self._number, self._path, self._questions = number, path, questions
        self._runs = 0
        self.names: list[str] = []  # of the acknowledged questions
        self.process: BaseProcess | None = None
        self.begin()

    def begin(self) -> None:
        """Begin, or go on."""
        self._name, self._runs = f"{self._number}.{self._runs}", self._runs + 1
        context = get_context("fork")
        self._told, told = context.Pipe(duplex=False)
        left = range(len(self.names), self._questions)
        self.process = context.Process(
            target=_learn, args=(self._path, self._name, left, told)
        )
        self.process.start()
        told.close()

    def read(self) -> None:
        """Read what it has acknowledged."""
        try:
            while self._told.poll():
                self.names.append(f"{self._name} {self._told.recv()}")
        except EOFError:
            pass

    @property
    def runs(self) -> bool:
        """Whether it has something to do."""
        return self.process is not None and self.process.is_alive()

    def kill(self) -> None:
        """Kill it, and begin again."""
        assert self.process is not None and self.process.pid is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()
        self.read()
        if len(self.names) < self._questions:
            self.begin()


def trial(
    path: Path, *, processes: int, questions: int, kills: int, seed: int = 0
) -> Outcome:
    """Let processes learn into one store, and kill them at random moments until they
    are done.
    """
    # before the processes are forked, or most kills would come while they import
    import_deferred()
    rng, begun, killed = random.Random(seed), time.monotonic(), 0
    workers = [_Worker(number, path, questions) for number in range(processes)]
    while running := [worker for worker in workers if worker.runs]:
        time.sleep(rng.expovariate(1 / _PAUSE) if killed < kills else 0.05)
        if killed < kills:
            rng.choice(running).kill()
            killed += 1
            ObservationStore.open(
                path
            ).close() if path.exists() else None  # which refuses a file that is torn
        for worker in workers:
            worker.read()
    names = [name for worker in workers for name in worker.names]
    store = ObservationStore.open(path)
    seconds, learner = time.monotonic() - begun, Learner.from_store(store)
    known, made = learner.observations, learner.calibration
    ids = [one.id for one in known]
    lost = len(set(names) - set(ids)) if known.seen == len(ids) else None
    doubled = len(ids) - len(set(ids))
    return Outcome(
        len(names),
        killed,
        known.seen,
        len(known),
        lost,
        doubled,
        made.n if made else 0,
        seconds,
    )


def main() -> int:
    """Print what the trial left; returns 1 where something was lost or came twice."""
    parser = parser_of("shared_store", __doc__)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--questions", type=int, default=1000, help="of each process")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = vars(parser.parse_args())
    with tempfile.TemporaryDirectory() as folder:
        outcome = trial(Path(folder) / "online.sqlite", **given)
    print(outcome)
    if not outcome.holds:
        print("SOMETHING WAS LOST, OR CAME TWICE")
    elif outcome.lost is None:
        print(
            "the store counts no fewer than were acknowledged, and nothing that it "
            "holds came twice"
        )
    else:
        print("nothing was lost, and nothing came twice")
    return int(not outcome.holds)


if __name__ == "__main__":
    sys.exit(main())
