"""Score the first responses to all inputs of a batch, and calibrate on them (Algorithm
2).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from langchain_core.messages import AIMessage

from langchain_reasc.answers import Vote, places_of, vote_of
from langchain_reasc.calibration import calibrate_mixture
from langchain_reasc.exceptions import (
    CalibrationDataError,
    ConfidenceError,
    LogprobsUnavailable,
)
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.token_signals import VERBALIZED
from langchain_reasc.models.signal_reading import (
    Provenance,
    SignalReading,
    read_signals,
)
from langchain_reasc.runnable.decision_plan import DecisionPlan
from langchain_reasc.runnable.voter import Voter
from langchain_reasc.sampling import SampledResponse


class _FirstScore(NamedTuple):
    """The score of a first response.

    Attributes:
        score: S(y).
        is_short: whether the response is shorter than the window.
        provenance: what the score is made of.
    """

    score: float
    is_short: bool
    provenance: Provenance


def plan_by_firsts(firsts: Sequence[SampledResponse], voter: Voter) -> DecisionPlan:
    """Calibrate on the first samples of a batch (Algorithm 2), and plan by that; count
    votes where it is impossible.
    """
    assert voter.mixture is not None
    measure = voter.mixture.measure
    # One server behind a balancer may give another k or V than the others.
    scores = list(_first_scores(firsts, voter, measure))
    most = _most_common(scores)
    comparable = [first for first in scores if _is_comparable(first.provenance, most)]
    notices: list[str] = []
    shorter = sum(first.is_short for first in comparable)
    has_window = measure.windowed and measure.signal != VERBALIZED
    if has_window and 2 * shorter > len(comparable) > 0:
        notices.append(
            f"{shorter} of {len(comparable)} first responses are shorter than the "
            f"window ({measure.window} tokens) and are scored by their plain mean; "
            "pass a measure with a smaller window"
        )
    try:
        calibration = calibrate_mixture(
            [first.score for first in comparable],
            measure=measure,
            fingerprint=voter.fingerprint,
            **most,
        )
    except CalibrationDataError as error:
        notices.append(
            "counting votes (ASC), because calibrating by mixture was not possible: "
            f"{error}"
        )
        return replace(voter.plan(None), notices=tuple(notices))
    notices += calibration.notices()
    return replace(voter.plan(calibration), notices=tuple(notices))


def _first_scores(
    firsts: Sequence[SampledResponse], voter: Voter, measure: Measure
) -> Iterator[_FirstScore]:
    """Yield the score of each response that has one."""
    for sample in firsts:
        if sample.status != "complete" or sample.message is None:
            continue
        # A response without confidence is reported by its own decision.
        with suppress(LogprobsUnavailable, ConfidenceError):
            reading = _first_reading(sample.message, voter, measure)
            tokens = len(reading.signals.get(measure.signal, ()))
            yield _FirstScore(
                reading.score(measure),
                tokens < measure.window,
                reading.provenance(measure.signal),
            )


def _first_reading(message: AIMessage, voter: Voter, measure: Measure) -> SignalReading:
    """Read the signals of a response; its vote is looked for only where they depend on
    it.
    """
    vote = Vote(None)
    if message.tool_calls or measure.of_span:
        # The user's extractor may fail, which its own decision reports.
        with suppress(Exception):
            tools = voter.options.tool_votes
            vote = vote_of(message, voter.extract, tools, voter.model.schemas)
    places = None
    if measure.of_span:
        places = places_of(message, voter.extract, vote)
    return read_signals(message, of_calls=vote.calls, places=places)


def _most_common(scores: Sequence[_FirstScore]) -> Provenance:
    """Return the k and V that most scores are made of."""
    top_k = Counter(first.provenance["top_k"] for first in scores)
    sizes = Counter(first.provenance["vocabulary_size"] for first in scores)
    return Provenance(top_k=_most_of(top_k), vocabulary_size=_most_of(sizes))


def _most_of(counts: Counter[int | None]) -> int | None:
    del counts[None]
    return max(counts, key=counts.__getitem__, default=None)


def _is_comparable(provenance: Provenance, most: Provenance) -> bool:
    """Return whether a score is made of the same k and V as most, as far as that is
    known. The decision on another one's question reports the difference.
    """
    is_same_k = provenance["top_k"] in (None, most["top_k"])
    is_same_size = provenance["vocabulary_size"] in (None, most["vocabulary_size"])
    return is_same_k and is_same_size
