"""A learner that several processes share: what each has seen goes into one store, and from there to the others."""

import logging
import math
import os
import time
from collections import deque
from pathlib import Path
from typing import Final

from langchain_reasc.calibration.fingerprint import check_fingerprint
from langchain_reasc.calibration.learner import ConsensusLearner, Fit
from langchain_reasc.calibration.online_state import Observed
from langchain_reasc.calibration.online_store import KEPT, OnlineStore, OnlineStoreFile
from langchain_reasc.exceptions import CalibrationFileError, FingerprintMismatch

__all__ = ["SharedLearner"]

logger = logging.getLogger(__name__)

_FITTING: Final = 15.0  # seconds that others leave it to a process to calibrate for all, which may have been killed
_AGAIN: Final = 5.0  # seconds until a store that was out of reach is tried again
_SILENT: Final = 3600.0  # seconds until that is logged again


class SharedLearner:
    """A learner beside its store. One thread at a time may use it.

    Whatever is learned is one transaction: what others have learned since is taken over, then one's own is added to it.
    Where the store is out of reach, learning goes on alone, and what it does not have yet is added later.

    Args:
        learner: what learns; replaced by another with each transaction.
        path: the store; None for none.
        any_model: whether a store is taken that was learned of another model, prompt or sampling.

    Attributes:
        learner: the latest one.
    """

    def __init__(
        self, learner: ConsensusLearner, path: str | os.PathLike[str] | None = None, *, any_model: bool = False
    ) -> None:
        self.learner = learner
        self.path = None if path is None else Path(path)
        self._file = None if path is None else OnlineStoreFile(path)
        self._any_model = any_model
        self._ends = False  # so that it calibrates no more
        self._try_again = self._warned = -math.inf
        self.forget_unsaved()

    def forget_unsaved(self) -> None:
        """Forget what the store does not have, as after a fork: that is the parent's."""
        self._unsaved: deque[Observed] = deque(maxlen=KEPT)
        self._untold: dict[str, bool] = {}  # outcomes
        self._followed: OnlineStore | None = None  # what was read up to question ``_last``; None: it is read whole
        self._last = 0
        self._fits = False  # whether this one calibrates for all

    @property
    def unsaved(self) -> int:
        """How many questions were learned from that the store does not have yet."""
        return len(self._unsaved)

    def restore(self) -> None:
        """Go on from the store, where it is there.

        Raises:
            CalibrationFileError: it is nothing that this has written, or its folder does not exist.
            FingerprintMismatch: it was learned of something else.
        """
        if self._file is not None:
            with self._file.transaction(create=False) as store:
                if store is not None and self._follow(store, self.learner):
                    self._followed, self._last = store, store.last
            self.learner.prepare()

    def learn(self, question: Observed) -> bool:
        """Learn from a question. Return whether it is time to calibrate, and this process is to do it for all."""
        to_fit = self._learn(question)
        self._fits = self._fits or to_fit
        return to_fit

    def record_outcome(self, id: str, correct: bool) -> bool:
        """Learn whether the answer to a question was right. Return whether the question is known."""
        self._untold[id] = correct
        self._learn()
        known = any(question.id == id for question in self.learner.questions)
        if not known:
            self._untold.pop(id, None)
        return known

    def read_whole(self) -> None:
        """Read all questions anew: outcomes that other processes were told of belong to older ones."""
        self._followed = None
        self._learn()

    def adopt(self, fit: Fit | None, made_by: ConsensusLearner) -> None:
        """Use what a learner has made of the questions, for all; None where it failed. Not where all was forgotten."""
        self._fits = False
        if self.learner.alarms == made_by.alarms:
            if fit is None:
                self.learner.postpone()
            else:
                self.learner.adopt(fit)
            self._learn()

    def save(self) -> None:
        """Add to the store now what it does not have."""
        self._try_again = -math.inf
        self._learn()

    def end(self) -> None:
        """Calibrate no more."""
        self._ends = True

    def close(self) -> None:
        """Add to the store what it does not have, and close it until its next use."""
        if self._unsaved or self._untold or self._fits:
            self.save()
        if self._file is not None:
            self._file.close()

    def _learn(self, question: Observed | None = None) -> bool:
        to_fit = self._learn_together(question)
        if to_fit is None:
            self._learn_alone(question)
            to_fit = question is not None and self.learner.due and not (self._fits or self._ends)
        return to_fit

    def _learn_alone(self, question: Observed | None) -> None:
        if question is not None:
            self._unsaved.append(question)
            if self.learner.observe(question):
                self._unsaved.clear()
        for id, correct in self._untold.items():
            self.learner.record_outcome(id, correct)
        if self._file is None:
            self._unsaved.clear()
            self._untold.clear()

    def _learn_together(self, question: Observed | None) -> bool | None:
        """Return whether this process is to calibrate; None where the store is out of reach, or there is none."""
        if self._file is None or time.monotonic() < self._try_again:
            return None
        try:
            self._catch_up(self._file)
            with self._file.transaction(create=True) as store:
                assert store is not None
                learner = self._together(store, question)
                to_fit = question is not None and self._claim(learner)
                if self._fits and self._ends:
                    learner.fitting_until = 0.0
                store.set_learned(learner.fingerprint, learner.state(), learner.calibration_of)
                last = store.last
        except (CalibrationFileError, FingerprintMismatch) as error:
            now, self._followed = time.monotonic(), None
            if now >= self._warned + _SILENT:
                self._warned = now
                logger.warning("what was learned is not kept: %s", error)
            self._try_again = now + _AGAIN
            return None
        learner.expect()
        self.learner, self._followed, self._last = learner, store, last
        self._unsaved.clear()
        self._untold.clear()
        return to_fit

    def _catch_up(self, file: OnlineStoreFile) -> None:
        """Take over a calibration that others have made, and work out what it expects while they may write."""
        with file.transaction(create=False) as store:
            state = None if store is None or self._unsaved else store.learned("state")
            if store is not None and state is not None and self.learner.is_behind(state):
                learner = self.learner.copy()
                if self._follow(store, learner):
                    self.learner, self._followed, self._last = learner, store, store.last
        self.learner.expect()

    def _together(self, store: OnlineStore, question: Observed | None) -> ConsensusLearner:
        """Return a learner of what is in the store, and of what is not yet, having added that."""
        learner, new = self.learner.copy(), [] if question is None else [question]
        if self._follow(store, learner):
            new = [*self._unsaved, *new]
        else:
            store.clear()
            for known in learner.questions:
                store.add(known, learner.measures)
        for one in new:
            one = learner.fitting(one, self.learner.made_of)
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
                check_fingerprint(fingerprint, learner.fingerprint)
            except FingerprintMismatch as error:
                raise FingerprintMismatch(f"online_state={str(self.path)!r}: {error}, or name another file") from None
        if state.alarms < learner.alarms:
            return False
        anew = self._followed is not store or state.alarms > learner.alarms
        questions = store.questions(learner.measures, after=0 if anew else self._last)
        learner.follow(state, store.calibration, questions, anew=anew)
        return True

    def _claim(self, learner: ConsensusLearner) -> bool:
        """Take it on to calibrate for all, where it is time and nobody does."""
        now = time.time()
        if self._fits or self._ends or not learner.due or now < learner.fitting_until:
            return False
        learner.fitting_until = now + _FITTING
        return True
