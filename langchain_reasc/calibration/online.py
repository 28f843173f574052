"""``calibration="online"``: learn from every answered question, in a background thread."""

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

from langchain_reasc.calibration.drift import Drift
from langchain_reasc.calibration.learner import MINIMUM, Learner
from langchain_reasc.calibration.observation_log import ObservationLog
from langchain_reasc.calibration.observations import MadeOf, Observation, Observations, numbered
from langchain_reasc.calibration.record import Calibration, Fingerprint
from langchain_reasc.calibration.selection import candidate_measures
from langchain_reasc.exceptions import ConfidenceError, LogprobsUnavailable
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.decision import Decision
from langchain_reasc.method.stopping import DEFAULT_BUDGET
from langchain_reasc.method.token_signals import SIGNALS, VERBALIZED
from langchain_reasc.threads import in_event_loop, start_daemon

__all__ = ["ConsensusCalibrator", "Finished", "FinishedListener", "observed"]

logger = logging.getLogger(__name__)

_WAITING: Final = 64  # questions; where more come than can be scored, they are not learned from
_IDLE: Final = 1.0  # seconds that the thread waits for a question: to start one takes longer than to wake one
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
        id: names it where its outcome may be told later.
        p_correct: how likely its answer is said to be right, where anything is.
        kind: the kind of request that it was, see :attr:`~langchain_reasc.calibration.Fingerprint.kind`.
    """

    answers: tuple[int | None, ...]
    readings: tuple[Reading | None, ...]
    decided: int
    answer: int | None
    id: str | None = None
    p_correct: float | None = None
    kind: str = ""

    @classmethod
    def of(
        cls,
        answers: Sequence[str | None],
        readings: Sequence[Reading | None],
        decision: Decision,
        id: str | None = None,
        p_correct: float | None = None,
        kind: str = "",
    ) -> Self:
        """Describe a question that was decided; ``answers`` and ``readings`` may end with those of an audit."""
        numbers, chosen = numbered(answers), decision.answer if decision.whole is None else None
        answer = numbers[answers.index(chosen)] if chosen in answers else None
        return cls(numbers, tuple(readings), decision.samples, answer, id, p_correct, kind)


FinishedListener = Callable[[Finished], None]


def observed(question: Finished, measures: Sequence[Measure], made_of: MadeOf, *, counted: bool = True) -> Observation:
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
    return Observation(
        question.answers,
        scores,
        counted=counted,
        decided=question.decided,
        answer=question.answer,
        id=question.id,
        p_correct=question.p_correct,
        kind=question.kind,
    )


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

    Each answered question becomes a row. Until there are ``minimum`` rows there is no calibration, and the caller
    counts votes (ASC). One is then made each time their number has grown by a quarter, by a thread that also scores and
    appends; it lives while there is something to do.

    Where requests are of several kinds (other tools, another schema or system prompt), each kind gets a calibration of
    its own, too, once there are ``minimum`` rows of it, which borrows from that of all while they are few.

    Where responses agree less, or more, than was learned, or confident ones no longer agree more than others, all rows
    are dropped, and learning begins anew: see :class:`~langchain_reasc.calibration.drift.DriftMonitor`.

    Args:
        measure: how responses are scored; None to choose among all that can be had.
        budget: responses to a question at most.
        minimum: questions before the first calibration.
        fingerprint: what is measured.
        path: the SQLite file to which rows are appended, and from whose rows the first calibration is made. Processes
            that share the file learn from the rows of all; each calibrates for itself. While the file cannot be
            written, rows are kept in memory, and the last 512 of them are appended later.
        any_model: whether to accept a file whose rows were measured on another model, prompt or sampling.
        seed: the seed of everything random: which questions are audited, and in a calibration.

    Raises:
        CalibrationFileError: the file is not a store of online learning, or its folder does not exist.
        FingerprintMismatch: its rows were measured on something else.
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
        self.measure, self._fingerprint, self._seed = measure, fingerprint or Fingerprint(), seed
        measures = [measure] if measure else candidate_measures([*SIGNALS, VERBALIZED])
        self._learner = Learner(measures, budget=budget, minimum=minimum, fingerprint=self._fingerprint, seed=seed)
        self._log = ObservationLog(measures, self._fingerprint, path, any_model=any_model)
        self.path = self._log.path
        self._waiting: deque[tuple[Finished, bool]] = deque()  # with whether what was learned decided it
        self._numbers = count()
        self._restarts = 0  # that are known here
        self._begin_threads()
        self._restored = self.path is None
        if not in_event_loop():
            self.restore()
        _calibrators.add(self)

    def restore(self) -> None:
        """Read the file and calibrate on its rows, once: when this is made, or in an event loop by the first call.

        Raises:
            CalibrationFileError: as when it is made.
            FingerprintMismatch: likewise.
        """
        if self._restored:
            return
        with self._lock:
            if not self._restored:
                self._log.restore()
                self._follow_log()
                if self._learner.due:
                    self._calibrate_on(self._learner)
                self._restored = True

    def _begin_threads(self) -> None:
        """Set locks and flags as they are while nothing goes on."""
        self._turn = threading.Condition()  # around what waits
        self._lock = threading.Lock()  # around rows and learner, which only one thread at a time changes; before _turn
        self._working = self._busy = self._closing = False  # whether there is a thread, and whether it is at work
        self._to_fit = False  # whether it is time to calibrate

    @property
    def observations(self) -> Observations:
        """A copy of the rows that count."""
        self.restore()
        with self._lock:
            return self._log.known.copy()

    @property
    def unsaved(self) -> int:
        """How many rows the file does not have yet."""
        return self._log.unsaved

    @property
    def calibration(self) -> Calibration | None:
        """The latest calibration, of all kinds of request, or None while too little has been seen."""
        self.restore()
        return self._learner.calibration

    def calibration_for(self, kind: str) -> Calibration | None:
        """Return the calibration by which a kind of request is decided: its own, or else that of all, if there is one.

        Args:
            kind: see :attr:`~langchain_reasc.calibration.Fingerprint.kind`.
        """
        self.restore()
        return self._learner.calibration_of(kind) or self._learner.calibration

    def notice(self, calibration: Calibration | None, kind: str = "") -> str:
        """Return what callers should know of decisions under this calibration of its own, or under none yet.

        Args:
            calibration: what decides.
            kind: the kind of request that it decides.
        """
        learner, known = self._learner, self._learner.observations
        if calibration is not None:
            of = "answers alone" if calibration.measure is None else f"answers and {calibration.measure}"
            why = f" ({calibration.untrusted})" if calibration.untrusted else ""
            curve = calibration.p_correct
            labels = f"{curve.n} of them with a known outcome" if curve else "without labels"
            of_kind = " of this kind" if calibration is learner.calibration_of(kind) else ""
            return f"learned from {calibration.n} questions{of_kind}{',' * bool(curve)} {labels}, of {of}{why}"
        so_far = f"{known.seen} of {learner.minimum} questions seen"
        if known.drifted:
            why = _DRIFTED[known.drifted]
            return f"{why}, so that was forgotten: counting votes (ASC) and learning again ({so_far})"
        if known.seen >= learner.minimum:
            return f"nothing could be learned from {known.seen} questions yet: counting votes (ASC)"
        return f"learning without labels ({so_far}): counting votes (ASC)"

    @property
    def learns_of(self) -> tuple[Measure | None, Fingerprint, Path | None]:
        """The measure and the model that it learns of, and its store."""
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
            self._wake()

    def _wake(self) -> None:
        """Let the thread go to work, and start it where it has ended; ``_turn`` is held."""
        self._turn.notify_all()
        if not self._working:
            try:
                start_daemon(self._work, "online calibration")
                self._working = True
            except RuntimeError as error:  # no thread can be started, when the process ends, say
                self._waiting.clear()
                self._to_fit = False
                logger.warning("a question could not be learned from: %s", error)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all questions are learned from; False where that takes longer than this many seconds."""
        with self._turn:
            return self._turn.wait_for(lambda: not (self._waiting or self._to_fit or self._busy), timeout)

    def record_outcome(self, id: str, correct: bool) -> bool:
        """Learn whether an answer was right, as somebody found out later. It takes milliseconds.

        Args:
            id: of the question, as the account of its answer has it.
            correct: whether its answer was right.

        Returns:
            Whether the question is among those that are known: the last 512 that were voted on, since it began anew.
        """
        self.restore()
        while self._learn_next():
            pass
        with self._lock:
            known = self._log.record_outcome(id, correct)
            self._follow_log()
        with self._turn:
            if self._to_fit:
                self._wake()
            self._turn.notify_all()  # whoever waits for what was learned from here
        return known

    def save(self) -> None:
        """Append to the file what could not be written before. A failure is logged: it must not cost an answer."""
        with self._lock:
            self._log.save()
            self._follow_log()

    def close(self, timeout: float | None = None) -> None:
        """Learn from the questions still queued, without calibrating anew, keep them, and close the store.

        Args:
            timeout: seconds for learning; what is not learned from by then is left out.
        """
        ends = math.inf if timeout is None else time.monotonic() + timeout
        with self._turn:
            self._closing = True
            self._turn.notify_all()
        while time.monotonic() < ends and self._learn_next():
            pass
        with self._lock:
            self._log.close()

    def _work(self) -> None:
        """Learn from the queued questions until there is nothing to do."""
        while self._has_work():
            self._learn_next()
            if self._to_fit:
                self._fit()

    def _has_work(self) -> bool:
        """Wait a while for something to do. Return False where nothing comes; then the thread ends."""
        with self._turn:
            self._busy = False
            self._turn.notify_all()
            self._turn.wait_for(lambda: self._waiting or self._to_fit or self._closing, _IDLE)
            self._working = self._busy = bool(self._waiting or self._to_fit)
            return self._working

    def _learn_next(self) -> bool:
        """Learn from the question that has waited longest. Return False where none does."""
        with self._lock:
            with self._turn:
                if not self._waiting:
                    return False
                question, learned = self._waiting.popleft()
            learner = self._learner
            try:
                scored = observed(question, learner.measures, learner.observations.made_of, counted=not learned)
                self._log.append(learner.with_predictions(scored))
                self._follow_log()
                self._to_fit = self._to_fit or (learner.due and not self._closing)
            except Exception:
                logger.exception("a question could not be learned from")
            return True

    def _follow_log(self) -> None:
        """Let the learner go on with the rows that are known now."""
        self._learner.observations = self._log.known
        before, self._restarts = self._restarts, len(self._log.known.restarts)
        if self._restored and self._restarts > before:
            logger.warning("%s", self.notice(None))

    def _fit(self) -> None:
        """Calibrate, which may take seconds; others may go on learning meanwhile."""
        with self._lock:
            self._to_fit = False
            self._log.sync()  # for outcomes that other processes were told
            self._follow_log()
            learner = self._learner.frozen()
        first = self._learner.calibration is None
        self._calibrate_on(learner)
        if first and (calibration := self._learner.calibration) is not None:
            logger.info("%s; from now on that decides", self.notice(calibration))

    def _calibrate_on(self, learner: Learner) -> None:
        """Calibrate on the rows of this learner, and use the result."""
        try:
            learner.calibrate()
        except Exception:
            if self._closing:  # the interpreter has ended around it; the rows are saved
                return
            logger.exception("a question could not be learned from")
            learner.postpone()
        self._learner.adopt(learner)

    def _in_child(self) -> None:
        """Forget, after a fork, what waits and what is not saved: that is the parent's, and its thread is not here."""
        self._begin_threads()
        self._waiting.clear()
        self._log.forget_unsaved()


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
