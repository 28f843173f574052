"""``calibration="online"``: learn from every answered question in a background thread, and save the state."""

import atexit
import hashlib
import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final, Protocol, Self
from weakref import WeakSet

import numpy as np

from langchain_reasc.calibration.fingerprint import check_fingerprint
from langchain_reasc.calibration.learner import KEPT, MINIMUM, ConsensusLearner
from langchain_reasc.calibration.online_state import Drift, MadeOf, Observed, OnlineState, OnlineStateFile
from langchain_reasc.calibration.record import Calibration, Fingerprint
from langchain_reasc.calibration.selection import candidate_measures
from langchain_reasc.exceptions import CalibrationFileError, ConfidenceError, FingerprintMismatch, LogprobsUnavailable
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.decision import Decision
from langchain_reasc.method.stopping import DEFAULT_BUDGET
from langchain_reasc.method.token_signals import SIGNALS, VERBALIZED
from langchain_reasc.threads import in_event_loop, start_daemon

__all__ = ["ConsensusCalibrator", "Finished", "FinishedListener", "observed"]

logger = logging.getLogger(__name__)

_WAITING: Final = 64  # questions; where more come than can be scored, they are not learned from
_EVERY: Final = 5.0  # seconds between writing what was seen
_LAST: Final = 5.0  # seconds for what still waits when the process ends
_DRIFTED: Final[dict[Drift, str]] = {
    "agreement": "responses agree with one another otherwise than was learned",
    "confidence": "confident responses no longer agree with the others to a question as often as was learned",
}


class Reading(Protocol):
    """The token signals of a response."""

    def score(self, measure: Measure) -> float: ...

    def provenance(self, signal: str) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Finished:
    """A question whose sampling has ended.

    Attributes:
        answers: in launch order, and last that of an audit; equal numbers for equal answers; None: no vote.
        readings: the token signals of each response; None where it carries none, or casts no vote.
        decided: responses that the decision rests on.
        answer: the number of the answer that was decided on; None where that is none, or is put together from several.
    """

    answers: tuple[int | None, ...]
    readings: tuple[Reading | None, ...]
    decided: int
    answer: int | None

    @classmethod
    def of(cls, answers: Sequence[str | None], readings: Sequence[Reading | None], decision: Decision) -> Self:
        """Describe a question that was decided; ``answers`` and ``readings`` may end with those of an audit."""
        numbers: dict[str | None, int] = {}
        for answer in answers:
            if answer is not None:
                numbers.setdefault(answer, len(numbers))
        chosen = decision.answer if decision.whole is None else None
        return cls(tuple(map(numbers.get, answers)), tuple(readings), decision.samples, numbers.get(chosen))


FinishedListener = Callable[[Finished], None]


def observed(question: Finished, measures: Sequence[Measure], made_of: MadeOf, *, counted: bool = True) -> Observed:
    """Score the responses to a question by each measure.

    Args:
        question: what sampling left.
        measures: the candidates.
        made_of: signal -> the k and V that its scores are made of. A signal that is seen for the first time enters it;
            scores made of another k or V are left out.
        counted: whether votes were counted when it was sampled.
    """
    scores = np.full((len(measures), len(question.answers)), np.nan)
    for at, reading in enumerate(question.readings):
        if reading is not None:
            scores[:, at] = [_score(reading, measure, made_of) for measure in measures]
    return Observed(question.answers, scores, counted=counted, decided=question.decided, answer=question.answer)


def _score(reading: Reading, measure: Measure, made_of: MadeOf) -> float:
    try:
        score = reading.score(measure)
    except (LogprobsUnavailable, ConfidenceError):
        return np.nan
    made = reading.provenance(measure.signal)
    now = {"top_k": made["top_k"], "vocabulary_size": made["vocabulary_size"]}
    then = made_of.setdefault(measure.signal, now)
    return score if all(None in (then[name], now[name]) or then[name] == now[name] for name in now) else np.nan


class ConsensusCalibrator:
    """Learns without labels, from how far the responses to each question agree. Safe to call from several threads.

    Until ``minimum`` questions have been answered there is no calibration, and the caller counts votes (ASC). One is
    then made each time their number has grown by a quarter. The last 512 are kept: their answers as numbers, and scores
    of their responses. A thread of its own scores, calibrates and writes the file; it lives while there is something to
    do.

    Where responses agree less, or more, than was learned, or confident ones no longer agree more than others, all of it
    is forgotten, and it begins anew: see :class:`~langchain_reasc.calibration.drift.DriftMonitor`.

    Args:
        measure: how responses are scored; None to choose among all that can be had.
        budget: responses to a question at most.
        minimum: questions before the first calibration.
        fingerprint: what is measured.
        path: the file to go on from, if it is there, and to keep. It is written every few seconds and when the process
            ends. Processes that share one learn together: each adds its questions to those of the others.
        any_model: whether a file is taken that was learned of another model, prompt or sampling.
        seed: the seed of everything random: which questions are audited, and in a calibration.

    Raises:
        CalibrationFileError: the file is there, and nothing that this has written; or its folder is not.
        FingerprintMismatch: it was learned of something else.
    """

    def __init__(
        self,
        *,
        measure: Measure | None = None,
        budget: int = DEFAULT_BUDGET,
        minimum: int = MINIMUM,
        fingerprint: Fingerprint | None = None,
        path: str | Path | None = None,
        any_model: bool = False,
        seed: int = 0,
    ) -> None:
        self.measure, self.path = measure, None if path is None else Path(path)
        self._file = None if path is None else OnlineStateFile(path)
        self._fingerprint, self._seed = fingerprint or Fingerprint(), seed
        measures = [measure] if measure else candidate_measures([*SIGNALS, VERBALIZED])
        self._learner = ConsensusLearner(
            measures, budget=budget, minimum=minimum, fingerprint=self._fingerprint, seed=seed
        )
        self._any_model = any_model
        self._waiting: deque[tuple[Finished, bool]] = deque()  # with whether what was learned decided it
        self._unsaved: deque[Observed] = deque(maxlen=KEPT)  # what the file does not have yet
        self._to_save = False
        self._next_save = -math.inf
        self._save_failed = False  # which is logged once
        self._began_anew = False  # so that what the file has no longer holds
        self._forked = False  # so that the learner has what the parent has not saved yet
        self._numbers = count()
        self._begin_threads()
        self._restored = self._file is None
        if not in_event_loop():
            self.restore()
        _calibrators.add(self)

    def restore(self) -> None:
        """Go on from the file, once: when this is made, or in an event loop by the first call.

        Raises:
            CalibrationFileError: as when it is made.
            FingerprintMismatch: likewise.
        """
        if self._restored:
            return
        with self._lock:
            if not self._restored and self._file is not None:
                if (state := self._file.load()) is not None:
                    self._check(state)
                    self._learner.restore(state)
                self._restored = True

    def _begin_threads(self) -> None:
        """Set locks and flags as they are while nothing goes on."""
        self._turn = threading.Condition()  # around what waits
        self._lock = threading.Lock()  # around the learner, which only one thread at a time changes; before _turn
        self._learning = self._working = self._closing = False

    def state(self) -> OnlineState:
        """Return all that it has learned."""
        self.restore()
        with self._lock:
            return self._learner.state()

    @property
    def calibration(self) -> Calibration | None:
        """The latest calibration, or None while too little has been seen."""
        self.restore()
        return self._learner.calibration

    def notice(self, calibration: Calibration | None) -> str:
        """Return what callers should know of decisions under this calibration of its own, or under none yet."""
        learner = self._learner
        if calibration is not None:
            of = "answers alone" if calibration.measure is None else f"answers and {calibration.measure}"
            why = f" ({calibration.untrusted})" if calibration.untrusted else ""
            return f"learned from {calibration.n} questions without labels, of {of}{why}"
        so_far = f"{learner.seen} of {learner.minimum} questions seen"
        if learner.alarms:
            why = _DRIFTED[learner.drifted or "agreement"]
            return f"{why}, so that was forgotten: counting votes (ASC) and learning again ({so_far})"
        if learner.seen >= learner.minimum:
            return f"nothing could be learned from {learner.seen} questions yet: counting votes (ASC)"
        return f"learning without labels ({so_far}): counting votes (ASC)"

    @property
    def learns_of(self) -> tuple[Measure | None, Fingerprint, Path | None]:
        """The measure and the model that it learns of, and its file."""
        return self.measure, self._fingerprint, self.path

    def audits(self, share: float) -> bool:
        """Whether the next question is audited: so large a share is, by the number of the question and the seed."""
        drawn = hashlib.blake2b(f"{self._seed} {next(self._numbers)}".encode(), digest_size=4).digest()
        return int.from_bytes(drawn) < share * 2**32

    def observe(self, question: Finished, *, learned: bool) -> None:
        """Queue a question; another thread learns from it.

        Args:
            question: what sampling left of it.
            learned: whether what was learned decided it, and not plain ASC.
        """
        _finish_at_exit()
        with self._turn:
            if len(self._waiting) >= _WAITING:
                return
            self._waiting.append((question, learned))
            self._learning = True
            self._turn.notify_all()
            if not self._working:
                try:
                    start_daemon(self._work, "online calibration")
                    self._working = True
                except RuntimeError as error:  # no thread can be started, when the process ends, say
                    self._waiting.clear()
                    self._learning = False
                    logger.warning("a question could not be learned from: %s", error)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all questions are learned from; False where that takes longer than this many seconds."""
        with self._turn:
            return self._turn.wait_for(lambda: not self._learning, timeout)

    def save(self) -> None:
        """Write the file now, if it has one. A failure is logged: it must not cost an answer."""
        if self._file is None:
            return
        with self._lock:
            self._to_save, self._next_save = False, time.monotonic() + _EVERY
            try:
                self._file.update(self._merge)
            except (CalibrationFileError, FingerprintMismatch) as error:
                if not self._save_failed:
                    logger.warning("what was learned is not kept: %s", error)
                self._save_failed = True
            else:
                self._unsaved.clear()
                self._began_anew = self._save_failed = False

    def close(self, timeout: float | None = None) -> None:
        """Learn from the questions still queued, without calibrating anew, and write the file if that is due.

        Args:
            timeout: seconds for learning; what is not learned from by then is left out.
        """
        ends = math.inf if timeout is None else time.monotonic() + timeout
        with self._turn:
            self._closing = True
            self._turn.notify_all()
        while time.monotonic() < ends and self._learn_next():
            pass
        if self._to_save:
            self.save()

    def _work(self) -> None:
        """Learn from the queued questions and write the file when it is time, until there is nothing to do."""
        while True:
            if self._learn_next():
                if self._learner.due and not self._closing:
                    self._refit()
                    self._next_save = -math.inf
                elif time.monotonic() < self._next_save:
                    continue
            if self._to_save and (self._closing or time.monotonic() >= self._next_save):
                self.save()
            if not self._wait_for_work():
                return

    def _wait_for_work(self) -> bool:
        """Wait for a question, or until it is time to write the file. Return False where there is nothing to do."""
        with self._turn:
            if not self._waiting:
                self._learning = False
                self._turn.notify_all()
                self._working = self._to_save
                if self._to_save:
                    left = max(0.0, self._next_save - time.monotonic())
                    self._turn.wait_for(lambda: self._waiting or self._closing, left)
            return self._working

    def _learn_next(self) -> bool:
        """Learn from the question that has waited longest. Return False where none does."""
        with self._lock:
            with self._turn:
                if not self._waiting:
                    return False
                question, learned = self._waiting.popleft()
            try:
                scored = observed(question, self._learner.measures, self._learner.made_of, counted=not learned)
                self._to_save = self._file is not None
                if self._learner.observe(scored):
                    logger.warning("%s", self.notice(None))
                    self._unsaved.clear()
                    self._began_anew, self._next_save = True, -math.inf
                elif self._to_save:
                    self._unsaved.append(scored)
            except Exception:
                logger.exception("a question could not be learned from")
            return True

    def _merge(self, others: OnlineState | None) -> OnlineState:
        """Return the state to write, with what other processes have written since the file was last read."""
        if others is not None:
            self._check(others)
        if (others is not None or self._forked) and not self._began_anew:
            self._learner = self._learner.merged(others, self._unsaved)
        self._forked = False
        return self._learner.state()

    def _refit(self) -> None:
        first = self._learner.calibration is None
        try:
            fit = self._learner.fit()
        except Exception:
            self._learner.postpone()
            if not self._closing:  # else the interpreter has ended around it; what it was made from is saved
                logger.exception("a question could not be learned from")
            return
        with self._lock:
            self._learner.adopt(fit)
        if first and (calibration := self._learner.calibration) is not None:
            logger.info("%s; from now on that decides", self.notice(calibration))

    def _check(self, state: OnlineState) -> None:
        if self._any_model:
            return
        try:
            check_fingerprint(state.fingerprint, self._fingerprint)
        except FingerprintMismatch as error:
            raise FingerprintMismatch(f"online_state={str(self.path)!r}: {error}, or name another file") from None

    def _in_child(self) -> None:
        """Forget, after a fork, what waits and what is not saved: that is the parent's, and its thread is not here."""
        self._begin_threads()
        self._waiting.clear()
        self._unsaved.clear()
        self._to_save = self._began_anew = False
        if self._file is not None:
            self._file, self._forked = OnlineStateFile(self._file.path), True


_calibrators: WeakSet[ConsensusCalibrator] = WeakSet()
_finishing_in: int | None = None  # the process that will call _finish when it ends


def _finish_at_exit() -> None:
    """Make sure that queued questions are learned from and saved when this process ends.

    Processes that ``multiprocessing`` has forked run its finalizers when they end; before Python 3.13 not ``atexit``'s.
    """
    global _finishing_in
    if _finishing_in != os.getpid():
        from multiprocessing.util import Finalize

        _finishing_in = os.getpid()
        atexit.register(_finish)
        Finalize(None, _finish, exitpriority=0)


def _finish() -> None:
    ends = time.monotonic() + _LAST
    for one in tuple(_calibrators):
        one.close(max(0.0, ends - time.monotonic()))


def _begin_in_child() -> None:
    for one in tuple(_calibrators):
        one._in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_in_child)
