"""Merge what several machines have learned of one model."""

import os
from collections.abc import Sequence
from pathlib import Path

from langchain_reasc.calibration.fingerprint import check_fingerprint
from langchain_reasc.calibration.learner import ConsensusLearner
from langchain_reasc.calibration.online_state import Observed
from langchain_reasc.calibration.online_store import OnlineStore
from langchain_reasc.exceptions import CalibrationFileError, FingerprintMismatch

__all__ = ["merge_stores"]


def merge_stores(sources: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]) -> OnlineStore:
    """Write a store of the newest 512 questions of several ones, and calibrate on them.

    Each gives as large a part of its questions. What monitors of drift have seen is not merged: they begin anew.

    Args:
        sources: stores of ``calibration="online"``, of the same model, prompt and sampling.
        out: the store to write; there must be no such file.

    Raises:
        CalibrationFileError: one of them cannot be read, holds nothing, or the new one is there already.
        FingerprintMismatch: they were learned of different models, prompts or sampling.
    """
    target, stores = Path(out), [OnlineStore.open(path) for path in sources]
    if target.exists():
        raise CalibrationFileError(f"{target} is there already; name a new file for what is merged")
    states, fingerprints = ([store.learned(name) for store in stores] for name in ("state", "fingerprint"))
    for path, state, fingerprint in zip(sources, states, fingerprints, strict=True):
        if state is None or fingerprint is None:
            raise CalibrationFileError(f"{path} holds nothing yet")
        try:
            check_fingerprint(fingerprints[0], fingerprint)
        except FingerprintMismatch as error:
            raise FingerprintMismatch(f"{path} does not go with {sources[0]}: {error}") from None
    measures = list(dict.fromkeys(measure for store in stores for measure in store.measures()))
    learner = ConsensusLearner(measures, fingerprint=fingerprints[0])
    placed = list[tuple[float, Observed]]()
    for store, state in zip(stores, states, strict=True):
        learner.made_of = {**state.made_of, **learner.made_of}
        questions = store.questions(measures)
        placed += [
            ((at + 1) / len(questions), learner.fitting(question, state.made_of))
            for at, question in enumerate(questions)
        ]
    for _, question in sorted(placed, key=lambda one: one[0]):
        learner.observe(question)
    learner.seen, learner.outcomes = (sum(getattr(one, name) for one in states) for name in ("seen", "outcomes"))
    learner.alarms, learner.drifted = max((state.alarms, state.drifted) for state in states)
    if learner.due:
        learner.adopt(learner.fit())
    merged = OnlineStore.create(target)
    with merged.transaction():
        for question in learner.questions:
            merged.add(question, measures)
        merged.set_learned(fingerprints[0], learner.state(), learner.calibration)
    return merged
