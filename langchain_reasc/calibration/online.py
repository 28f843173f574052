"""``calibration="online"``: learn from every answered question in a background thread, and keep it in a store."""

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
from langchain_reasc.calibration.learner import MINIMUM, ConsensusLearner
from langchain_reasc.calibration.online_state import Drift, MadeOf, Observed, OnlineState
from langchain_reasc.calibration.online_store import KEPT, OnlineStore, OnlineStoreFile
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
_IDLE: Final = 1.0  # seconds that the thread waits for a question: to start one takes longer than to wake one
_FITTING: Final = 15.0  # seconds that others leave it to a process to calibrate for all, which may have been killed
_AGAIN: Final = 5.0  # seconds until a store that was out of reach is tried again
_SILENT: Final = 3600.0  # seconds until that is logged again
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
    """

    answers: tuple[int | None, ...]
    readings: tuple[Reading | None, ...]
    decided: int
    answer: int | None
    id: str | None = None

    @classmethod
    def of(
        cls,
        answers: Sequence[str | None],
        readings: Sequence[Reading | None],
        decision: Decision,
        id: str | None = None,
    ) -> Self:
        """Describe a question that was decided; ``answers`` and ``readings`` may end with those of an audit."""
        numbers: dict[str | None, int] = {}
        for answer in answers:
            if answer is not None:
                numbers.setdefault(answer, len(numbers))
        chosen = decision.answer if decision.whole is None else None
        return cls(tuple(map(numbers.get, answers)), tuple(readings), decision.samples, numbers.get(chosen), id)


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
    return Observed(
        question.answers,
        scores,
        counted=counted,
        decided=question.decided,
        answer=question.answer,
        id=question.id,
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

    Until ``minimum`` questions have been answered there is no calibration, and the caller counts votes (ASC). One is
    then made each time their number has grown by a quarter. The last 512 are kept: their answers as numbers, and scores
    of their responses. A thread of its own scores, calibrates and writes; it lives while there is something to do.

    Where responses agree less, or more, than was learned, or confident ones no longer agree more than others, all of it
    is forgotten, and it begins anew: see :class:`~langchain_reasc.calibration.drift.DriftMonitor`.

    Args:
        measure: how responses are scored; None to choose among all that can be had.
        budget: responses to a question at most.
        minimum: questions before the first calibration.
        fingerprint: what is measured.
        path: the store to go on from, if it is there, and to keep. Each question is written once it is learned from.
            Processes that share one learn together. Where it cannot be written, learning goes on in memory, and what is
            not written yet is written once it can be, of the last 512 questions.
        any_model: whether a store is taken that was learned of another model, prompt or sampling.
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
        self._file = None if path is None else OnlineStoreFile(path)
        self._fingerprint, self._seed = fingerprint or Fingerprint(), seed
        measures = [measure] if measure else candidate_measures([*SIGNALS, VERBALIZED])
        self._learner = ConsensusLearner(
            measures, budget=budget, minimum=minimum, fingerprint=self._fingerprint, seed=seed
        )
        self._any_model = any_model
        self._waiting: deque[tuple[Finished, bool]] = deque()  # with whether what was learned decided it
        self._unsaved: deque[Observed] = deque(maxlen=KEPT)  # learned from, but not in the store yet
        self._untold: dict[str, bool] = {}  # outcomes, likewise
        self._followed: OnlineStore | None = (
            None  # the store that was read up to ``_last``; None: it must be read whole
        )
        self._last = 0
        self._to_fit = False  # whether it is time to calibrate, and no other process does it
        self._fits = False  # whether this one does
        self._try_again = -math.inf
        self._warned = -math.inf  # when it was logged that the store is out of reach
        self._numbers = count()
        self._begin_threads()
        self._restored = self._file is None
        if not in_event_loop():
            self.restore()
        _calibrators.add(self)

    def restore(self) -> None:
        """Go on from the store, once: when this is made, or in an event loop by the first call.

        Raises:
            CalibrationFileError: as when it is made.
            FingerprintMismatch: likewise.
        """
        if self._restored:
            return
        with self._lock:
            if not self._restored and self._file is not None:
                with self._file.transaction(create=False) as store:
                    if store is not None and self._follow(store, self._learner):
                        self._followed, self._last = store, store.last
                self._learner.prepare()
                self._restored = True

    def _begin_threads(self) -> None:
        """Set locks and flags as they are while nothing goes on."""
        self._turn = threading.Condition()  # around what waits
        self._lock = threading.Lock()  # around the learner, which only one thread at a time changes; before _turn
        self._learning = self._working = self._closing = False

    def state(self) -> OnlineState:
        """Return what it has learned, beside the questions."""
        self.restore()
        with self._lock:
            return self._learner.state()

    @property
    def questions(self) -> tuple[Observed, ...]:
        """The last 512 questions."""
        self.restore()
        return self._learner.questions

    @property
    def unsaved(self) -> int:
        """How many questions were learned from that the store does not have yet."""
        return len(self._unsaved)

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
            curve = calibration.p_correct
            labels = f"{curve.n} of them with a known outcome" if curve else "without labels"
            return f"learned from {calibration.n} questions{',' * bool(curve)} {labels}, of {of}{why}"
        so_far = f"{learner.seen} of {learner.minimum} questions seen"
        if learner.alarms:
            why = _DRIFTED[learner.drifted or "agreement"]
            return f"{why}, so that was forgotten: counting votes (ASC) and learning again ({so_far})"
        if learner.seen >= learner.minimum:
            return f"nothing could be learned from {learner.seen} questions yet: counting votes (ASC)"
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
            self._untold[id] = correct
            self._exchange()
            known = any(question.id == id for question in self._learner.questions)
            if not known:
                self._untold.pop(id, None)
        with self._turn:
            if self._to_fit:
                self._wake()
        return known

    def save(self) -> None:
        """Write to the store what could not be written before. A failure is logged: it must not cost an answer."""
        with self._lock:
            self._try_again = -math.inf
            self._exchange()

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
        if self._unsaved or self._fits:
            self.save()
        with self._lock:
            if self._file is not None:
                self._file.close()

    def _work(self) -> None:
        """Learn from the queued questions until there is nothing to do."""
        while self._has_work():
            self._learn_next()
            if self._to_fit:
                self._refit()

    def _has_work(self) -> bool:
        """Wait a while for something to do. Return False where nothing comes; then the thread ends."""
        with self._turn:
            if not (self._waiting or self._to_fit):
                self._learning = False
                self._turn.notify_all()
                self._turn.wait_for(lambda: self._waiting or self._to_fit or self._closing, _IDLE)
                self._working = bool(self._waiting or self._to_fit)
            return self._working

    def _learn_next(self) -> bool:
        """Learn from the question that has waited longest. Return False where none does."""
        with self._lock:
            with self._turn:
                if not self._waiting:
                    return False
                question, learned = self._waiting.popleft()
            try:
                alarms = self._learner.alarms
                scored = observed(question, self._learner.measures, self._learner.made_of, counted=not learned)
                self._exchange(scored)
                if self._learner.alarms > alarms:
                    logger.warning("%s", self.notice(None))
            except Exception:
                logger.exception("a question could not be learned from")
            return True

    def _exchange(self, question: Observed | None = None) -> None:
        """Take over what others have kept, and keep what they do not have, in one transaction; or else learn alone.

        Args:
            question: one more question to learn from.
        """
        if self._file is not None and time.monotonic() >= self._try_again:
            try:
                with self._file.transaction(create=True) as store:
                    assert store is not None
                    learner, now = self._together(store, question), time.time()
                    if to_fit := self._may_fit(learner) and now >= learner.fitting_until:
                        learner.fitting_until = now + _FITTING
                    elif self._fits and self._closing:  # another process may do it
                        learner.fitting_until = 0.0
                    store.set_learned(self._fingerprint, learner.state(), learner.calibration)
                    last = store.last
            except (CalibrationFileError, FingerprintMismatch) as error:
                now, self._followed = time.monotonic(), None
                if now >= self._warned + _SILENT:
                    self._warned = now
                    logger.warning("what was learned is not kept: %s", error)
                self._try_again = now + _AGAIN
            else:
                if learner.calibration is not self._learner.calibration:
                    learner.prepare()
                self._learner, self._followed, self._last = learner, store, last
                self._to_fit = self._to_fit or to_fit
                self._unsaved.clear()
                self._untold.clear()
                return
        if question is not None:
            self._unsaved.append(question)
            if self._learner.observe(question):
                self._unsaved.clear()
        for outcome in self._untold.items():
            self._learner.record_outcome(*outcome)
        if self._file is None:
            self._untold.clear()
        self._to_fit = self._to_fit or self._may_fit(self._learner)

    def _may_fit(self, learner: ConsensusLearner) -> bool:
        return learner.due and not (self._fits or self._closing)

    def _together(self, store: OnlineStore, question: Observed | None) -> ConsensusLearner:
        """Return a learner of what is in the store, and of what is not yet, having added that."""
        learner, new = self._learner.copy(), [] if question is None else [question]
        if self._follow(store, learner):
            new = [*self._unsaved, *new]
        else:
            store.clear()
            for known in learner.questions:
                store.add(known, learner.measures)
        for one in new:
            one = learner.fitting(one, self._learner.made_of)
            if learner.observe(one):
                store.clear()
            else:
                store.add(one, learner.measures)
        for id, correct in self._untold.items():
            if learner.record_outcome(id, correct):
                store.set_correct(id, correct)
        return learner

    def _follow(self, store: OnlineStore, learner: ConsensusLearner) -> bool:
        """Let a learner follow what the store knows. Return False where it knows nothing, or has not seen a drift yet.

        Raises:
            FingerprintMismatch: it was learned of something else.
        """
        state, fingerprint = store.learned("state"), store.learned("fingerprint")
        if state is None or fingerprint is None:
            return False
        if not self._any_model:
            try:
                check_fingerprint(fingerprint, self._fingerprint)
            except FingerprintMismatch as error:
                raise FingerprintMismatch(f"online_state={str(self.path)!r}: {error}, or name another file") from None
        if state.alarms < learner.alarms:
            return False
        anew = self._followed is not store or state.alarms > learner.alarms
        questions = store.questions(learner.measures, after=0 if anew else self._last)
        learner.follow(state, store.learned("calibration"), questions, anew=anew)
        return True

    def _refit(self) -> None:
        with self._lock:
            self._to_fit, self._fits = False, True
            self._followed = None  # so that outcomes that others were told of are read, too
            self._exchange()
        learner = self._learner
        first = learner.calibration is None
        try:
            fit = learner.fit()
        except Exception:
            with self._lock:
                self._fits = False
                self._learner.postpone()
                self._exchange()
            if not self._closing:  # else the interpreter has ended around it; what it was made from is saved
                logger.exception("a question could not be learned from")
            return
        with self._lock:
            self._fits = False
            if self._learner.alarms == learner.alarms:
                self._learner.adopt(fit)
                self._exchange()
        if first and (calibration := self._learner.calibration) is not None:
            logger.info("%s; from now on that decides", self.notice(calibration))

    def _in_child(self) -> None:
        """Forget, after a fork, what waits and what is not saved: that is the parent's, and its thread is not here."""
        self._begin_threads()
        self._waiting.clear()
        self._unsaved.clear()
        self._untold.clear()
        self._followed, self._to_fit, self._fits = None, False, False


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
