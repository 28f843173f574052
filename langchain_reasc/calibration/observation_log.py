"""The rows that a process knows: its own and, with a file, those of all processes that
share the file.
"""

import logging
import math
import os
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from langchain_reasc.calibration.drift import Drift
from langchain_reasc.calibration.observation_file import (
    NOT_KEPT,
    ObservationFile,
    ObservationStore,
)
from langchain_reasc.calibration.observations import (
    KEPT,
    Observation,
    Observations,
    SignalProvenance,
)
from langchain_reasc.exceptions import CalibrationFileError, FingerprintMismatch
from langchain_reasc.method.confidence import Measure
from langchain_reasc.models.fingerprint import Fingerprint

__all__ = ["ObservationLog"]

logger = logging.getLogger(__name__)

_RETRY_AFTER: Final = 5.0  # seconds until an unreachable file is tried again
_WARN_AFTER: Final = 3600.0  # seconds until the next warning about it


class ObservationLog:
    """Rows in memory, and the file that they are appended to. Only one thread at a time
    may use it.

    While the file cannot be reached, rows are kept in memory and appended later.

    Args:
        measures: the measures of the rows' scores.
        fingerprint: the model, sampling and prompt.
        path: the file, if any.
        any_model: whether to accept a file of another model, prompt or sampling.

    Attributes:
        known: the rows that count.
    """

    def __init__(
        self,
        measures: Sequence[Measure],
        fingerprint: Fingerprint,
        path: str | os.PathLike[str] | None = None,
        *,
        any_model: bool = False,
    ) -> None:
        self.known = Observations()
        self.path = None if path is None else Path(path)
        self._file = None if path is None else ObservationFile(path)
        self._measures = measures
        self._fingerprint = fingerprint
        self._any_model = any_model
        self._try_again = -math.inf
        self._warned = -math.inf
        self.forget_unsaved()

    def forget_unsaved(self) -> None:
        """Drop what is not in the file yet. After a fork, that belongs to the parent."""
        self._unsaved: deque[Observation] = deque(maxlen=KEPT)
        self._untold: dict[str, bool] = {}  # outcomes to write
        self._dropped: list[int] = []  # rows to delete
        self._restarts: dict[int, Drift] = {}  # restarts to write
        # The store whose rows are known; None to read all again.
        self._store: ObservationStore | None = None

    @property
    def unsaved(self) -> int:
        """How many rows are not in the file yet."""
        return len(self._unsaved)

    def restore(self) -> None:
        """Read the file, if there is one.

        Raises:
            CalibrationFileError: the file is not a store, or its folder does not exist.
            FingerprintMismatch: its rows were measured on another model, sampling or
                prompt.
        """
        if self._file is None:
            return
        with self._file.transaction(create=False) as store:
            if store is not None and store.fingerprint is not None:
                self._check_model(store)
                self.known = store.observations(self._measures)
                self._store = store

    def append(self, row: Observation) -> None:
        """Append a row, after the rows that other processes have appended."""
        if not self.sync(row):
            self.known.append(row)
            if self._file is not None:
                self._unsaved.append(row)

    def record_outcome(self, id: str, correct: bool) -> bool:
        """Store whether the answer to a question was right. Return False if the
        question is unknown.
        """
        self._untold[id] = correct
        self.sync()
        is_known = self.known.record_outcome(id, correct)
        if not is_known or self._file is None:
            self._untold.pop(id, None)
        return is_known

    def save(self) -> None:
        """Write to the file now, even if it could not be reached a moment ago."""
        self._try_again = -math.inf
        self.sync()

    def close(self) -> None:
        """Write what is not in the file yet, and close the file until its next use."""
        if self._unsaved or self._untold:
            self.save()
        if self._file is not None:
            self._file.close()

    def sync(self, *rows: Observation) -> bool:
        """Write these rows and everything else that is not in the file, and read what
        is new in it.

        Returns:
            False if there is no file, or it cannot be reached. Then nothing has
            changed.
        """
        if self._file is None or time.monotonic() < self._try_again:
            return False
        try:
            with self._file.transaction(create=True) as store:
                assert store is not None
                observations, new_rows, outcomes = self._exchange(store, rows)
        except (CalibrationFileError, FingerprintMismatch) as error:
            now = time.monotonic()
            self._store = None
            if now >= self._warned + _WARN_AFTER:
                self._warned = now
                logger.warning(NOT_KEPT, error)
            self._try_again = now + _RETRY_AFTER
            return False
        before = set(observations.restarts)
        self._dropped = observations.extend(new_rows)
        observations.set_outcomes(outcomes)
        self.known = observations
        self._store = store
        self._unsaved.clear()
        self._untold.clear()
        self._restarts = {
            number: drift
            for number, drift in observations.restarts.items()
            if number not in before
        }
        # A restart is written at once, so that other processes follow it.
        return self.sync() if self._restarts else True

    def _exchange(
        self, store: ObservationStore, added: Sequence[Observation]
    ) -> tuple[Observations, list[tuple[int, Observation]], list[tuple[int, bool]]]:
        """Write what is not in the file yet.

        Returns:
            The rows that were known before, the new rows, and all outcomes as (number
            of a row, outcome).
        """
        self._check_model(store)
        if store is self._store:
            observations = self.known
            store.delete(self._dropped)
            if self._restarts:
                store.restart(self._restarts)
            last_restart = max(observations.restarts, default=-1)
            for number, drift in store.restarts(last_restart):
                observations.restart(number, drift)
        else:
            observations = Observations(store.restarts())
        ours = self.known.provenance
        observations.provenance = ours | store.provenance
        rows = store.rows(self._measures, after=observations.last)
        unsaved = list(self._unsaved)
        if not observations.last and not rows:  # a new file
            unsaved = list(self.known)
        for row in (*unsaved, *added):
            fitting = self._without_other_scores(row, ours, observations.provenance)
            rows.append(store.append(fitting, self._measures))
        store.set_outcomes(self._untold)
        store.describe(self._fingerprint, observations.provenance)
        return observations, rows, store.outcomes()

    def _without_other_scores(
        self, row: Observation, ours: SignalProvenance, stored: SignalProvenance
    ) -> Observation:
        """Return a row without the scores whose signal has another k or V in the file
        (``stored``) than here (``ours``).
        """
        signals = [measure.signal for measure in self._measures]
        differs = [ours.get(signal) != stored.get(signal) for signal in signals]
        if not any(differs):
            return row
        scores = row.scores.copy()
        scores[np.array(differs)] = np.nan
        return replace(row, scores=scores)

    def _check_model(self, store: ObservationStore) -> None:
        if self._any_model:
            return
        try:
            store.check_fits(self._fingerprint, f"Online(state={str(self.path)!r})")
        except FingerprintMismatch as error:
            raise FingerprintMismatch(f"{error}, or name another file") from None
