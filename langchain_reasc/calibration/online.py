"""``calibration="online"``: learn from every answered question in a background thread."""

import atexit
import hashlib
import logging
import math
import os
import threading
import time
from collections import deque
from itertools import count
from pathlib import Path
from typing import Final
from weakref import WeakSet

from langchain_reasc.calibration.answered_question import AnsweredQuestion
from langchain_reasc.calibration.calibration import Calibration
from langchain_reasc.calibration.drift import Drift
from langchain_reasc.calibration.fitting import READ_SCORES
from langchain_reasc.calibration.learner import MINIMUM, Learner
from langchain_reasc.calibration.observation_log import ObservationLog
from langchain_reasc.calibration.observations import Observations
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import DEFAULT_BUDGET
from langchain_reasc.models.fingerprint import Fingerprint
from langchain_reasc.threads import in_event_loop, start_daemon

__all__ = ["ConsensusCalibrator"]

logger = logging.getLogger(__name__)

_WAITING: Final = 64  # questions in the queue at most; others are not learned from
# Seconds that the thread waits for a question, because waking it is faster than starting
# one.
_IDLE: Final = 1.0
_LAST: Final = 5.0  # seconds for the queued questions when the process ends
_DRIFTED: Final[dict[Drift, str]] = {
    "agreement": "responses agree with one another otherwise than was learned",
    "confidence": (
        "confident responses no longer agree with the others to a question as often as "
        "was learned"
    ),
}


class ConsensusCalibrator:
    """Learns without labels, from how far the responses to each question agree. Safe to
    call from several threads.

    Each answered question becomes a row. The first calibration is made at ``minimum``
    rows; before, the caller decides without one. Further ones are made each time the
    rows have grown by a quarter. A thread scores responses, appends rows and
    calibrates. It ends when it has nothing to do.

    If there are several kinds of request (other tools, another schema or system
    prompt), each kind with ``minimum`` rows also gets a calibration of its own, which
    borrows from that of all kinds while the rows are few.

    If the responses show drift, all rows are dropped and learning starts again: see
    :class:`~langchain_reasc.calibration.drift.DriftMonitor`.

    Args:
        measure: how responses are scored; None for the confidence that the model
            states, or else the mean log-probability of the tokens.
        budget: responses to a question at most.
        minimum: questions before the first calibration.
        fingerprint: the model, prompt and sampling.
        path: the SQLite file of the rows. Processes that share it learn from the rows
            of all of them, and each calibrates for itself. While the file cannot be
            written, rows are kept in memory, and the last 512 of them are appended
            later.
        any_model: whether to accept a file whose rows were measured on another model,
            prompt or sampling.
        seed: the seed of the calibration and of the choice of audited questions.

    Raises:
        CalibrationFileError: the file is not a store of online learning, or its folder
            does not exist.
        FingerprintMismatch: its rows were measured on another model, prompt or
            sampling.
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
        self.measure = measure
        self._fingerprint = fingerprint or Fingerprint()
        self._seed = seed
        measures = [measure] if measure else [*READ_SCORES]
        self._learner = Learner(
            measures,
            budget=budget,
            minimum=minimum,
            fingerprint=self._fingerprint,
            seed=seed,
        )
        self._log = ObservationLog(
            measures, self._fingerprint, path, any_model=any_model
        )
        self.path = self._log.path
        # Each question with whether a calibration decided it.
        self._waiting: deque[tuple[AnsweredQuestion, bool]] = deque()
        self._numbers = count()
        self._restarts = 0  # restarts that were logged
        self._reset_threads()
        self._restored = self.path is None
        if not in_event_loop():
            self.restore()
        _calibrators.add(self)

    def restore(self) -> None:
        """Read the file and calibrate on its rows, once.

        The constructor does this, unless it runs in an event loop; then the first call
        does.

        Raises:
            CalibrationFileError: the file is not a store of online learning, or its
                folder does not exist.
            FingerprintMismatch: its rows were measured on another model, prompt or
                sampling.
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

    def _reset_threads(self) -> None:
        """Set locks and flags to their values without a thread."""
        self._turn = threading.Condition()  # guards the queue and the flags
        self._lock = threading.Lock()  # guards rows and learner; acquired before _turn
        self._working = False  # whether there is a thread
        self._busy = False  # whether it is at work
        self._closing = False
        self._to_fit = False  # whether a calibration is due

    @property
    def observations(self) -> Observations:
        """A copy of the rows that count."""
        self.restore()
        with self._lock:
            return self._log.known.copy()

    @property
    def unsaved(self) -> int:
        """How many rows are not in the file yet."""
        return self._log.unsaved

    @property
    def calibration(self) -> Calibration | None:
        """The latest calibration of all kinds of request; None before the first."""
        self.restore()
        return self._learner.calibration

    def calibration_for(self, kind: str) -> Calibration | None:
        """Return the calibration for a kind of request: its own, or else that of all
        kinds.

        Args:
            kind: see :attr:`~langchain_reasc.calibration.Fingerprint.kind`.
        """
        self.restore()
        return self._learner.calibration_of(kind) or self._learner.calibration

    def notice(self, calibration: Calibration | None, kind: str = "") -> str:
        """Describe what was learned so far, for the notices of a result.

        Args:
            calibration: the calibration that decides; None before the first.
            kind: the kind of request.
        """
        learner = self._learner
        if calibration is not None:
            questions = f"{calibration.n} questions"
            if calibration is learner.calibration_of(kind):
                questions += " of this kind"
            labels = " without labels"
            if calibration.p_correct:
                labels = f", {calibration.p_correct.n} of them with a known outcome"
            source = "answers alone"
            if calibration.measure is not None:
                source = f"answers and {calibration.measure}"
            if calibration.untrusted:
                source += f" ({calibration.untrusted})"
            return f"learned from {questions}{labels}, of {source}"
        number = learner.observations.seen
        drift = learner.observations.drifted
        so_far = f"{number} of {learner.minimum} questions seen"
        if drift:
            return (
                f"{_DRIFTED[drift]}, so that was forgotten: counting votes and learning "
                f"again ({so_far})"
            )
        if number >= learner.minimum:
            return (
                f"nothing could be learned from {number} questions yet: counting votes"
            )
        return f"learning without labels ({so_far}): counting votes"

    @property
    def learns_of(self) -> tuple[Measure | None, Fingerprint, Path | None]:
        """The measure, the model and the file. Calibrators with the same can be
        exchanged.
        """
        return self.measure, self._fingerprint, self.path

    def audits(self, share: float) -> bool:
        """Decide whether the next question is audited, so that this share of all
        questions is.
        """
        text = f"{self._seed} {next(self._numbers)}"
        digest = hashlib.blake2b(text.encode(), digest_size=4).digest()
        return int.from_bytes(digest) < share * 2**32

    def observe(self, question: AnsweredQuestion, *, learned: bool) -> None:
        """Queue a question for the thread.

        Args:
            question: the question.
            learned: whether a learned calibration decided it.
        """
        _finish_at_exit()
        with self._turn:
            if len(self._waiting) >= _WAITING:
                return
            self._waiting.append((question, learned))
            self._wake()

    def _wake(self) -> None:
        """Wake the thread, or start it. The caller holds ``_turn``."""
        self._turn.notify_all()
        if not self._working:
            try:
                start_daemon(self._work, "online calibration")
                self._working = True
            except RuntimeError as error:
                # At the end of the process, for example, no thread can be started.
                self._waiting.clear()
                self._to_fit = False
                logger.warning("a question could not be learned from: %s", error)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all queued questions are learned from. Return False after this
        many seconds.
        """
        with self._turn:
            return self._turn.wait_for(
                lambda: not (self._waiting or self._to_fit or self._busy), timeout
            )

    def record_outcome(self, id: str, correct: bool) -> bool:
        """Store whether an answer was right. This takes milliseconds.

        Args:
            id: the question's id, from the account of its answer.
            correct: whether the answer was right.

        Returns:
            False if the question is not among the last 512 that were voted on.
        """
        self.restore()
        while self._learn_next():
            pass
        with self._lock:
            is_known = self._log.record_outcome(id, correct)
            self._follow_log()
        with self._turn:
            if self._to_fit:
                self._wake()
            self._turn.notify_all()
        return is_known

    def save(self) -> None:
        """Append the rows that could not be written before. A failure is logged,
        because it must not cost an answer.
        """
        with self._lock:
            self._log.save()
            self._follow_log()

    def close(self, timeout: float | None = None) -> None:
        """Store the queued questions, without calibrating again, and close the file.

        Args:
            timeout: seconds for the queue; later questions are dropped.
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
        """Learn from queued questions until the queue stays empty."""
        while self._has_work():
            self._learn_next()
            if self._to_fit:
                self._fit()

    def _has_work(self) -> bool:
        """Wait a moment for something to do. Return False if nothing comes; the thread
        then ends.
        """
        with self._turn:
            self._busy = False
            self._turn.notify_all()
            self._turn.wait_for(
                lambda: self._waiting or self._to_fit or self._closing, _IDLE
            )
            self._working = self._busy = bool(self._waiting or self._to_fit)
            return self._working

    def _learn_next(self) -> bool:
        """Learn from the oldest queued question. Return False if the queue is empty."""
        with self._lock:
            with self._turn:
                if not self._waiting:
                    return False
                question, learned = self._waiting.popleft()
            learner = self._learner
            try:
                row = question.scored_by(
                    learner.measures,
                    learner.observations.provenance,
                    counted=not learned,
                )
                self._log.append(learner.with_predictions(row))
                self._follow_log()
                self._to_fit = self._to_fit or (learner.due and not self._closing)
            except Exception:
                logger.exception("a question could not be learned from")
            return True

    def _follow_log(self) -> None:
        """Give the learner the current rows, and log a restart."""
        self._learner.observations = self._log.known
        restarts = len(self._log.known.restarts)
        if self._restored and restarts > self._restarts:
            logger.warning("%s", self.notice(None))
        self._restarts = restarts

    def _fit(self) -> None:
        """Calibrate. This may take seconds, during which other threads may add rows."""
        with self._lock:
            self._to_fit = False
            # Outcomes may have been reported to other processes.
            self._log.sync()
            self._follow_log()
            learner = self._learner.frozen()
        is_first = self._learner.calibration is None
        self._calibrate_on(learner)
        calibration = self._learner.calibration
        if is_first and calibration is not None:
            logger.info("%s; from now on that decides", self.notice(calibration))

    def _calibrate_on(self, learner: Learner) -> None:
        """Calibrate on the rows of this learner and use the result."""
        try:
            learner.calibrate()
        except Exception:
            # The interpreter is shutting down, and the rows are saved.
            if self._closing:
                return
            logger.exception("a question could not be learned from")
            learner.postpone_fits()
        self._learner.adopt_fits(learner)

    def _in_child(self) -> None:
        """Drop the queue and the unsaved rows after a fork. They are the parent's, and
        so is its thread.
        """
        self._reset_threads()
        self._waiting.clear()
        self._log.forget_unsaved()


_calibrators: WeakSet[ConsensusCalibrator] = WeakSet()
_finishing_in: int | None = None  # the process that has registered _finish


def _finish_at_exit() -> None:
    """Register that queued questions are stored when this process ends.

    Before Python 3.13, processes that ``multiprocessing`` forks run its finalizers, but
    not ``atexit``'s.
    """
    global _finishing_in
    if _finishing_in != os.getpid():
        from multiprocessing.util import Finalize

        _finishing_in = os.getpid()
        atexit.register(_finish)
        Finalize(None, _finish, exitpriority=0)


def _finish() -> None:
    ends = time.monotonic() + _LAST
    for calibrator in tuple(_calibrators):
        calibrator.close(max(0.0, ends - time.monotonic()))


def _reset_in_child() -> None:
    for calibrator in tuple(_calibrators):
        calibrator._in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_in_child)
