"""The rows that a process knows: its own and, with a file, those of all processes that append to it."""

import logging
import math
import os
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from langchain_reasc.calibration.drift import Drift
from langchain_reasc.calibration.observation_file import ObservationFile, ObservationStore, without_other_scores
from langchain_reasc.calibration.observations import KEPT, Observation, Observations
from langchain_reasc.calibration.record import Fingerprint
from langchain_reasc.exceptions import CalibrationFileError, FingerprintMismatch
from langchain_reasc.method.confidence import Measure

__all__ = ["ObservationLog"]

logger = logging.getLogger(__name__)

_AGAIN: Final = 5.0  # seconds until a file that was out of reach is tried again
_SILENT: Final = 3600.0  # seconds until that is logged again


class ObservationLog:
    """Rows in memory, beside the file that they are appended to. One thread at a time may use it.

    While the file is out of reach, rows are kept in memory and appended later.

    Args:
        measures: what the rows' scores are of.
        fingerprint: what is measured.
        path: the file; None for none.
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
        self._measures, self._fingerprint, self._any_model = measures, fingerprint, any_model
        self._try_again = self._warned = -math.inf
        self.forget_unsaved()

    def forget_unsaved(self) -> None:
        """Forget what the file does not have, as after a fork: that is the parent's."""
        self._unsaved: deque[Observation] = deque(maxlen=KEPT)
        self._untold: dict[str, bool] = {}  # outcomes
        self._dropped: list[int] = []  # rows
        self._restarts: dict[int, Drift] = {}
        self._store: ObservationStore | None = None  # whose rows are known; None: they are to be read anew

    @property
    def unsaved(self) -> int:
        """How many rows the file does not have yet."""
        return len(self._unsaved)

    def restore(self) -> None:
        """Read the file, if there is one.

        Raises:
            CalibrationFileError: it was not written by this class, or its folder does not exist.
            FingerprintMismatch: its rows were measured on something else.
        """
        if self._file is not None:
            with self._file.transaction(create=False) as store:
                if store is not None and store.fingerprint is not None:
                    self._check_model(store)
                    self.known, self._store = store.observations(self._measures), store

    def append(self, row: Observation) -> None:
        """Append a row, after those that other processes have appended."""
        if not self.sync(row):
            self.known.append(row)
            if self._file is not None:
                self._unsaved.append(row)

    def record_outcome(self, id: str, correct: bool) -> bool:
        """Keep whether the answer to a question was right. Return whether the question is known."""
        self._untold[id] = correct
        self.sync()
        known = self.known.record_outcome(id, correct)
        if not known or self._file is None:
            self._untold.pop(id, None)
        return known

    def save(self) -> None:
        """Append to the file now what it does not have."""
        self._try_again = -math.inf
        self.sync()

    def close(self) -> None:
        """Append to the file what it does not have, and close it until its next use."""
        if self._unsaved or self._untold:
            self.save()
        if self._file is not None:
            self._file.close()

    def sync(self, *rows: Observation) -> bool:
        """Write to the file these rows and what else it does not have, and read what is new in it.

        Returns:
            False if the file is out of reach, or there is none. Then nothing has changed.
        """
        if self._file is None or time.monotonic() < self._try_again:
            return False
        try:
            with self._file.transaction(create=True) as store:
                assert store is not None
                known, read, outcomes = self._exchange(store, rows)
        except (CalibrationFileError, FingerprintMismatch) as error:
            now, self._store = time.monotonic(), None
            if now >= self._warned + _SILENT:
                self._warned = now
                logger.warning("what was learned is not kept: %s", error)
            self._try_again = now + _AGAIN
            return False
        before = dict(known.restarts)
        self._dropped = known.extend(read)
        known.set_outcomes(outcomes)
        self.known, self._store = known, store
        self._unsaved.clear()
        self._untold.clear()
        self._restarts = {at: drift for at, drift in known.restarts.items() if at not in before}
        return self.sync() if self._restarts else True

    def _exchange(
        self, store: ObservationStore, added: Sequence[Observation]
    ) -> tuple[Observations, list[tuple[int, Observation]], list[tuple[int, bool]]]:
        """Write what the file does not have.

        Returns:
            The rows that were known of this file, those to add to them, and outcomes by the numbers of rows.
        """
        self._check_model(store)
        if store is self._store:
            known = self.known
            store.delete(self._dropped)
            if self._restarts:
                store.restart(self._restarts)
            for at, drift in store.restarts(max(known.restarts, default=-1)):
                known.restart(at, drift)
        else:
            known = Observations(store.restarts())
        own, known.made_of = self.known.made_of, {**self.known.made_of, **store.made_of}
        rows, unsaved = store.rows(self._measures, after=known.last), list(self._unsaved)
        if not known.last and not rows:  # a new file
            unsaved = list(self.known)
        for row in (*unsaved, *added):
            fitting = without_other_scores(row, self._measures, own, known.made_of)
            rows.append(store.append(fitting, self._measures))
        store.set_outcomes(self._untold)
        store.describe(self._fingerprint, known.made_of)
        return known, rows, store.outcomes()

    def _check_model(self, store: ObservationStore) -> None:
        if not self._any_model:
            try:
                store.check_fits(self._fingerprint, f"online_state={str(self.path)!r}")
            except FingerprintMismatch as error:
                raise FingerprintMismatch(f"{error}, or name another file") from None
