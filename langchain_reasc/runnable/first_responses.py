"""Score the first responses to all inputs of a batch, and calibrate on them (Algorithm
2).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

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
from langchain_reasc.models.logprobs import Provenance, SignalReading, read_signals
from langchain_reasc.runnable.plan import Plan
from langchain_reasc.runnable.voter import Voter
from langchain_reasc.sampling import Sample


def plan_by_firsts(firsts: Sequence[Sample], voter: Voter) -> Plan:
    """Calibrate on the first samples of a batch (Algorithm 2), and plan by that; count
    votes where it is impossible.
    """
    assert voter.mixture is not None
    measure, notices = voter.mixture.measure, tuple[str, ...]()
    kept, most = _comparable(list(_first_scores(firsts, voter, measure)))
    shorter = sum(short for _, short in kept)
    if (
        measure.windowed
        and measure.signal != VERBALIZED
        and 2 * shorter > len(kept) > 0
    ):
        notices = (
            f"{shorter} of {len(kept)} first responses are shorter than the window "
            f"({measure.window} tokens) and are scored by their plain mean; pass a "
            "measure with a smaller window",
        )
    scores = [score for score, _ in kept]
    try:
        calibration = calibrate_mixture(
            scores, measure=measure, fingerprint=voter.fingerprint, **most
        )
    except CalibrationDataError as error:
        why = f"counting votes (ASC), because calibrating by mixture was not possible: {error}"
        return replace(voter.plan(None), notices=(*notices, why))
    return replace(voter.plan(calibration), notices=(*notices, *calibration.notices()))


def _comparable(
    scored: list[tuple[float, bool, Provenance]],
) -> tuple[list[tuple[float, bool]], Provenance]:
    """Leave out scores made of another k or V than most, as their own decisions report;
    return the others', too.
    """
    most = Provenance(
        top_k=_most_common(made["top_k"] for *_, made in scored),
        vocabulary_size=_most_common(made["vocabulary_size"] for *_, made in scored),
    )
    kept = [
        (score, short)
        for score, short, made in scored
        if made["top_k"] in (None, most["top_k"])
        if made["vocabulary_size"] in (None, most["vocabulary_size"])
    ]
    return kept, most


def _first_scores(
    firsts: Sequence[Sample], voter: Voter, measure: Measure
) -> Iterator[tuple[float, bool, Provenance]]:
    """Yield the score of each response that has one, whether it is shorter than the
    window, and what it is made of.
    """
    for sample in firsts:
        if sample.status == "complete" and sample.message is not None:
            with suppress(
                LogprobsUnavailable, ConfidenceError
            ):  # its own decision reports that
                reading = _first_reading(sample.message, voter, measure)
                short = len(reading.signals.get(measure.signal, ())) < measure.window
                yield reading.score(measure), short, reading.provenance(measure.signal)


def _first_reading(message: AIMessage, voter: Voter, measure: Measure) -> SignalReading:
    """Read the signals of a response; its vote is looked for only where they depend on
    it.
    """
    vote = Vote(None)
    if message.tool_calls or measure.of_span:
        with suppress(Exception):  # the user's extractor: its own decision reports that
            vote = vote_of(
                message, voter.extract, voter.options.tool_votes, voter.model.schemas
            )
    places = places_of(message, voter.extract, vote) if measure.of_span else None
    return read_signals(message, of_calls=vote.calls, places=places)


def _most_common(values: Iterable[int | None]) -> int | None:
    known = Counter(value for value in values if value is not None)
    return max(known, key=known.__getitem__, default=None)
