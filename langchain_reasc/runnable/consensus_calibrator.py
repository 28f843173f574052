"""What ``calibration="online"`` learns with: fed by every question that is answered, and off the caller's path."""

import atexit
import hashlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Final
from weakref import WeakSet

from langchain_reasc.calibration import Calibration, Fingerprint, check_fingerprint
from langchain_reasc.calibration.learner import MINIMUM, ConsensusLearner
from langchain_reasc.calibration.online_state import OnlineState, load_online_state, save_online_state
from langchain_reasc.calibration.selection import candidate_measures
from langchain_reasc.exceptions import CalibrationFileError, FingerprintMismatch
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.stopping import DEFAULT_BUDGET
from langchain_reasc.method.token_signals import SIGNALS, VERBALIZED
from langchain_reasc.models.daemons import start_daemon
from langchain_reasc.runnable.observing import Finished, observed

__all__ = ["ConsensusCalibrator"]

logger = logging.getLogger(__name__)

_WAITING: Final = 64  # questions; where more come than can be scored, they are not learned from
_EVERY: Final = 5.0  # seconds between writing what was seen
_LAST: Final = 1.0  # seconds for what still waits when the process ends


class ConsensusCalibrator:
    """Learns without labels, from how far the responses to each question agree. Safe to call from several threads.

    Until ``minimum`` questions have been answered there is no calibration, and the caller counts votes (ASC). One is
    then made each time their number has grown by a quarter. The last 512 are kept: their answers as numbers, and scores
    of their responses. A thread of its own scores and calibrates; it lives while there is something to do.

    Where responses agree less, or more, than was learned, all of it is forgotten, and it begins anew: see
    :class:`~langchain_reasc.calibration.drift.DriftMonitor`.

    Args:
        measure: how responses are scored; None to choose among all that can be had.
        budget: responses to a question at most.
        minimum: questions before the first calibration.
        fingerprint: what is measured.
        path: the file to go on from, if it is there, and to keep. Of two processes that share one the last to write
            wins, and what only the other has seen is lost; neither ever reads half of it.
        any_model: whether a file is taken that was learned of another model, prompt or sampling.
        seed: of what is random: which questions are audited, and in a calibration.

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
        self._fingerprint, self._seed = fingerprint or Fingerprint(), seed
        measures = [measure] if measure else candidate_measures([*SIGNALS, VERBALIZED])
        self._learner = ConsensusLearner(
            measures, budget=budget, minimum=minimum, fingerprint=self._fingerprint, seed=seed
        )
        self._waiting: deque[Callable[[], None]] = deque()
        self._turn = threading.Condition()
        self._working = False
        self._lock = threading.Lock()  # around the learner, which only one thread at a time changes
        self._numbers = count()
        self._saved: float | None = None  # when
        if self.path is not None and (state := load_online_state(self.path)) is not None:
            self._check(state, any_model=any_model)
            self._learner.restore(state)

    def state(self) -> OnlineState:
        """All that it has learned."""
        with self._lock:
            return self._learner.state()

    @property
    def calibration(self) -> Calibration | None:
        """The latest calibration, or None while too little has been seen."""
        return self._learner.calibration

    def notice(self, calibration: Calibration | None) -> str:
        """What those should know whose question is decided under this calibration of its own, or under none yet."""
        learner = self._learner
        if calibration is not None:
            of = "answers alone" if calibration.measure is None else f"answers and {calibration.measure}"
            why = f" ({calibration.untrusted})" if calibration.untrusted else ""
            return f"learned from {calibration.n} questions without labels, of {of}{why}"
        so_far = f"{learner.seen} of {learner.minimum} questions seen"
        if learner.alarms:
            return (
                "responses agree with one another otherwise than was learned, so that was forgotten: counting votes "
                f"(ASC) and learning again ({so_far})"
            )
        if learner.seen >= learner.minimum:
            return f"nothing could be learned from {learner.seen} questions yet: counting votes (ASC)"
        return f"learning without labels ({so_far}): counting votes (ASC)"

    def goes_with(self, measure: Measure | None, fingerprint: Fingerprint, path: str | Path | None) -> bool:
        """Whether it learns of this measure and this model, into this file."""
        return (measure, fingerprint, None if path is None else Path(path)) == (
            self.measure,
            self._fingerprint,
            self.path,
        )

    def learns_like(self, other: object) -> bool:
        """Whether it learns of the measure and the model that another learns of, and into the same file."""
        return isinstance(other, ConsensusCalibrator) and other.goes_with(self.measure, self._fingerprint, self.path)

    def audits(self, share: float) -> bool:
        """Whether the next question is audited: so large a share is, by the number of the question and the seed."""
        drawn = hashlib.blake2b(f"{self._seed} {next(self._numbers)}".encode(), digest_size=4).digest()
        return int.from_bytes(drawn) < share * 2**32

    def observe(self, question: Finished, *, learned: bool) -> None:
        """Take in a question; the work of it is done in another thread.

        Args:
            question: what sampling left of it.
            learned: whether what was learned decided it, and not plain ASC.
        """
        with self._turn:
            if len(self._waiting) >= _WAITING:
                return
            self._waiting.append(lambda: self._learn(question, learned=learned))
            if not self._working:
                try:
                    start_daemon(self._work, "online calibration")
                    self._working = True
                except RuntimeError as error:  # no thread can be started, when the process ends, say
                    self._waiting.clear()
                    logger.warning("a question could not be learned from: %s", error)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all that came is learned from; False where that takes longer than this many seconds."""
        with self._turn:
            return self._turn.wait_for(lambda: not self._working, timeout)

    def save(self) -> None:
        """Write the file now, if it has one. A failure is logged: it must not cost an answer."""
        if self.path is None:
            return
        _unsaved.discard(self)
        self._saved = time.monotonic()
        try:
            save_online_state(self.state(), self.path)
        except CalibrationFileError as error:
            logger.warning("what was learned is not kept: %s", error)

    def _work(self) -> None:
        while True:
            with self._turn:
                if not self._waiting:
                    self._working = False
                    self._turn.notify_all()
                    return
                task = self._waiting.popleft()
            try:
                task()
            except Exception:
                logger.exception("a question could not be learned from")

    def _learn(self, question: Finished, *, learned: bool) -> None:
        seen = observed(question, self._learner.measures, self._learner.made_of)
        with self._lock:
            alarm = self._learner.observe(seen, decided=question.decided, answer=question.answer, learned=learned)
        if alarm:
            logger.warning("%s", self.notice(None))
        elif self._learner.due:
            self._refit(first=self.calibration is None)
        elif self.path is not None and self._saved is not None and time.monotonic() < self._saved + _EVERY:
            _unsaved.add(self)
            return
        self.save()

    def _refit(self, *, first: bool) -> None:
        try:
            fit = self._learner.fit()
        except Exception:
            self._learner.postpone()
            raise
        with self._lock:
            self._learner.adopt(fit)
        if first and fit.calibration is not None:
            logger.info("%s; from now on that decides", self.notice(fit.calibration))

    def _check(self, state: OnlineState, *, any_model: bool) -> None:
        if any_model:
            return
        try:
            check_fingerprint(state, self._fingerprint)
        except FingerprintMismatch as error:
            raise FingerprintMismatch(f"online_state={str(self.path)!r}: {error}, or name another file") from None


_unsaved: WeakSet[ConsensusCalibrator] = WeakSet()


@atexit.register
def _save_all() -> None:
    for one in tuple(_unsaved):
        one.wait(_LAST)
        one.save()
