"""``calibration="online"`` with ``escalate_to``: learn from the questions that both
models were asked.
"""

import hashlib
import logging
import os
import threading
from collections import deque
from itertools import count
from pathlib import Path
from weakref import WeakSet

from langchain_reasc.calibration.calibration import Calibration
from langchain_reasc.calibration.escalation import (
    WITHIN,
    Course,
    LearnedEscalation,
    Shadowed,
)
from langchain_reasc.calibration.observation_file import (
    NOT_KEPT,
    ObservationFile,
    ObservationStore,
)
from langchain_reasc.calibration.observations import KEPT
from langchain_reasc.exceptions import CalibrationFileError, FingerprintMismatch
from langchain_reasc.method.confidence import Measure
from langchain_reasc.models.fingerprint import Fingerprint

__all__ = ["EscalationLearner"]

logger = logging.getLogger(__name__)


class EscalationLearner:
    """Learns when a small model's answer may stand, for each kind of request. Safe to
    call from several threads.

    Args:
        within: the bound on the rate of contradictions, see
            :mod:`~langchain_reasc.calibration.escalation`.
        measure: how the first response is scored, to test rules by its confidence, too;
            None tests votes alone.
        fingerprint: the small model, its prompt and its sampling.
        large: the large model, its prompt and its sampling.
        path: the SQLite file in which each shadowed question counts at once, for all
            processes that share it. While the file cannot be written, questions are
            kept in memory, and the last 512 of them are written later.
        any_model: whether to accept a file of another small model.
        seed: the seed of the choice of shadowed questions.
    """

    def __init__(
        self,
        *,
        within: float = WITHIN,
        measure: Measure | None = None,
        fingerprint: Fingerprint | None = None,
        large: Fingerprint | None = None,
        path: str | Path | None = None,
        any_model: bool = False,
        seed: int = 0,
    ) -> None:
        self._fingerprint = fingerprint or Fingerprint()
        self.large = large or Fingerprint()
        self.measure = measure
        self._any_model = any_model
        self._seed = seed
        self._at_first = LearnedEscalation(within=within, scored=measure is not None)
        self.path = None if path is None else Path(path)
        self._file = None if path is None else ObservationFile(path)
        self._learned: dict[str, LearnedEscalation] = {}
        self._unsaved: deque[tuple[str, Shadowed, str | None]] = deque(maxlen=KEPT)
        self._numbers = count()
        self._is_warned = False
        self._lock = threading.Lock()
        _learners.add(self)

    @property
    def learns_of(
        self,
    ) -> tuple[
        LearnedEscalation, Measure | None, Fingerprint, Fingerprint, Path | None
    ]:
        """The promise, the measure, the models and the file. Learners with the same can
        be exchanged.
        """
        return self._at_first, self.measure, self._fingerprint, self.large, self.path

    @property
    def calibration(self) -> Calibration | None:
        """What was learned of the kind of request with most shadowed questions, to be
        saved; None before any.
        """
        if not self.kinds:
            return None
        return Calibration.of_escalation(
            self.kinds[0], self.measure, self._fingerprint, self.large
        )

    @property
    def kinds(self) -> list[LearnedEscalation]:
        """What is known of each kind of request that was asked here; first of the one
        with most shadowed questions.
        """
        asked = [learned for learned in self._learned.values() if learned.rows]
        return sorted(asked, key=lambda learned: -learned.rows)

    def learned(self, kind: str) -> LearnedEscalation:
        """Return what is known of a kind of request. The first call reads the file.

        Raises:
            CalibrationFileError: the file is not a store of online learning, or its
                folder does not exist.
            FingerprintMismatch: its rows were measured on another model, prompt or
                sampling.
        """
        with self._lock:
            if kind not in self._learned:
                stored = None
                if self._file is not None:
                    with self._file.transaction(create=False) as store:
                        if store is not None:
                            self._check_model(store)
                            stored = store.escalation(self._key(kind))
                self._learned[kind] = stored or self._at_first
            return self._learned[kind]

    def course(self, kind: str, audit: float) -> Course:
        """Return how the next question of a kind is answered; ``audit`` is the share
        that is shadowed in the end.
        """
        text = f"{self._seed} {next(self._numbers)}"
        digest = hashlib.blake2b(text.encode(), digest_size=4).digest()
        drawn = int.from_bytes(digest) / 2**32
        return self.learned(kind).course(drawn, audit)

    def has_seen(self, kind: str, id: str) -> bool:
        """Return whether the file has a question of this kind that was observed with
        its id.
        """
        self.learned(kind)
        if self._file is None:
            return False
        with self._lock, self._file.transaction(create=False) as store:
            return store is not None and store.is_shadowed(self._key(kind), id)

    def observe(self, kind: str, row: Shadowed, id: str | None = None) -> None:
        """Learn from a shadowed question. A file that cannot be written is logged, and
        costs no answer.

        Args:
            kind: the kind of request.
            row: what both models answered.
            id: the question, for :meth:`has_seen`.
        """
        self.learned(kind)
        with self._lock:
            before = self._learned[kind]
            after = before.after(row)
            if self._file is not None:
                self._unsaved.append((kind, row, id))
                # The file has what other processes have learned, too.
                after = self._write(kind) or after
            self._learned[kind] = after
        _log_change(before, after)

    def _write(self, kind: str) -> LearnedEscalation | None:
        """Write what is not in the file yet. Return what is known of the kind then;
        None if that failed.
        """
        assert self._file is not None
        try:
            with self._file.transaction(create=True) as store:
                assert store is not None
                self._check_model(store)
                store.describe(self._fingerprint, store.provenance)
                for unsaved_kind, row, id in self._unsaved:
                    key = self._key(unsaved_kind)
                    learned = store.escalation(key) or self._at_first
                    store.set_escalation(key, learned.after(row), id)
                written = store.escalation(self._key(kind))
        except (CalibrationFileError, FingerprintMismatch) as error:
            if not self._is_warned:
                logger.warning(NOT_KEPT, error)
            self._is_warned = True
            return None
        self._unsaved.clear()
        self._is_warned = False
        return written

    def _check_model(self, store: ObservationStore) -> None:
        if not self._any_model:
            store.check_fits(self._fingerprint, f"Online(state={str(self.path)!r})")

    def _key(self, kind: str) -> str:
        """Name a kind of request, the large model and the promise: with others,
        learning begins anew.
        """
        large = self.large.model_dump_json()
        text = f"{kind} {large} {self._at_first.within} {self.measure}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _log_change(before: LearnedEscalation, after: LearnedEscalation) -> None:
    if after.restarts > before.restarts:
        logger.warning(
            "the small model contradicts the large one more often than it may: "
            "learning begins again"
        )
    elif after.status_changed(before):
        logger.info("%s", after.status)


_learners: WeakSet[EscalationLearner] = WeakSet()


def _unlock_in_child() -> None:
    for learner in tuple(_learners):
        learner._lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock_in_child)
