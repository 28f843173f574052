"""Merge what several machines have learned of one model."""

import os
from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path

from langchain_reasc.calibration.fingerprint import check_fingerprint
from langchain_reasc.calibration.learner import MOST_KINDS, ConsensusLearner
from langchain_reasc.calibration.online_state import Counts, Observed, OnlineState
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
    states, fingerprint = [_state(store, stores[0]) for store in stores], stores[0].learned("fingerprint")
    measures = list(dict.fromkeys(measure for store in stores for measure in store.measures()))
    learner = ConsensusLearner(measures, fingerprint=fingerprint)
    together = _together(states)
    learner.made_of = dict(together.made_of)
    own = [
        [learner.fitting(question, state.made_of) for question in store.questions(measures)]
        for store, state in zip(stores, states, strict=True)
    ]
    learner.follow(together, lambda kind: None, _interleaved(own), anew=True)
    if learner.due:
        learner.adopt(learner.fit())
    merged = OnlineStore.create(target)
    with merged.transaction():
        for question in learner.questions:
            merged.add(question, measures)
        merged.set_learned(fingerprint, learner.state(), learner.calibration_of)
    return merged


def _together(states: Sequence[OnlineState]) -> OnlineState:
    """Return how much several have seen, of all kinds of request and of those that they have seen most."""
    kinds = Counter[str]()
    for state in states:
        kinds.update({name: counts.seen for name, counts in state.kinds.items()})
    alarms, drifted = max((one.alarms, one.drifted) for one in states)
    return OnlineState(
        **_summed(states),
        made_of={signal: made for state in reversed(states) for signal, made in state.made_of.items()},
        alarms=alarms,
        drifted=drifted,
        drift=(),
        kinds={
            name: Counts(**_summed([state.kinds[name] for state in states if name in state.kinds]))
            for name, _ in kinds.most_common(MOST_KINDS)
        },
    )


def _summed(counts: Sequence[Counts]) -> dict[str, int]:
    return {"seen": sum(one.seen for one in counts), "outcomes": sum(one.outcomes for one in counts)}


def _interleaved(stores: Sequence[Sequence[Observed]]) -> list[Observed]:
    """Return the questions of all stores, spread evenly, so that the newest are as many of each as it has in all."""
    placed = [(at / len(own), question) for own in stores for at, question in enumerate(own, start=1)]
    return [question for _, question in sorted(placed, key=itemgetter(0))]


def _state(store: OnlineStore, first: OnlineStore) -> OnlineState:
    """Return what a store has learned of the same model as the first."""
    state: OnlineState | None = store.learned("state")
    if state is None:
        raise CalibrationFileError(f"{store.path} holds nothing yet")
    try:
        check_fingerprint(first.learned("fingerprint"), store.learned("fingerprint"))
    except FingerprintMismatch as error:
        raise FingerprintMismatch(f"{store.path} does not go with {first.path}: {error}") from None
    return state
