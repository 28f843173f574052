"""``calibration="mixture"`` over a batch: the paper's Algorithm 2 as it stands.

The first response to every input is drawn before any decision; their scores calibrate; then each input is decided,
starting from the response it already has.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress

from langchain_core.messages import AIMessage

from langchain_reasc.answers import Vote, places_of, vote_of
from langchain_reasc.calibration import calibrate_mixture
from langchain_reasc.exceptions import CalibrationDataError, ConfidenceError, LogprobsUnavailable
from langchain_reasc.method.confidence import Measure
from langchain_reasc.method.token_signals import VERBALIZED
from langchain_reasc.models.logprobs import Provenance, SignalReading, read_signals
from langchain_reasc.runnable.question import Start
from langchain_reasc.runnable.solver import Solver
from langchain_reasc.sampling import Sample

__all__ = ["starts"]


def starts(firsts: Sequence[Sample], solver: Solver) -> list[Start]:
    """Algorithm 2 on the first samples of a batch; where it is not possible, every input counts votes and says why."""
    assert solver.mixture is not None
    measure = solver.mixture.measure
    scores, shorter, made_of = _scores(firsts, solver, measure)
    notices: tuple[str, ...] = ()
    if measure.windowed and measure.signal != VERBALIZED and 2 * shorter > len(scores) > 0:
        notices = (
            f"{shorter} of {len(scores)} first responses are shorter than the window ({measure.window} tokens) and are "
            "scored by their plain mean; pass a measure with a smaller window",
        )
    calibration = None
    try:
        calibration = calibrate_mixture(scores, measure=measure, fingerprint=solver.fingerprint, **made_of)
        notices += calibration.notices(solver.safeguard)
    except CalibrationDataError as error:
        notices += (f"counting votes (ASC), because calibrating by mixture was not possible: {error}",)
    return [Start(sample, calibration, notices) for sample in firsts]


def _scores(firsts: Sequence[Sample], solver: Solver, measure: Measure) -> tuple[list[float], int, Provenance]:
    """The scores, how many responses are shorter than the window, and the k and V that most scores were made of.

    Scores made of another k or V say nothing beside them and are left out; their own decisions report that.
    """
    scored: list[tuple[float, bool, Provenance]] = []
    for sample in firsts:
        if sample.status != "complete" or sample.message is None:
            continue
        with suppress(LogprobsUnavailable, ConfidenceError):  # its own decision reports that
            reading = _reading(sample.message, solver, measure)
            short = len(reading.signals.get(measure.signal, ())) < measure.window
            scored.append((reading.score(measure), short, reading.provenance(measure.signal)))
    k = _most_common(one["top_k"] for *_, one in scored)
    size = _most_common(one["vocabulary_size"] for *_, one in scored)
    kept = [
        (score, short)
        for score, short, one in scored
        if one["top_k"] in (None, k) and one["vocabulary_size"] in (None, size)
    ]
    return [score for score, _ in kept], sum(short for _, short in kept), Provenance(top_k=k, vocabulary_size=size)


def _reading(message: AIMessage, solver: Solver, measure: Measure) -> SignalReading:
    """The vote is looked for only where the signals depend on it."""
    vote = Vote(None)
    if message.tool_calls or measure.of_span:
        with suppress(Exception):  # the user's extractor: its own decision reports that
            vote = vote_of(message, solver.extract, solver.tool_votes, solver.model.schemas)
    places = places_of(message, solver.extract, vote) if measure.of_span else None
    return read_signals(message, of_calls=vote.calls, places=places)


def _most_common(values: Iterable[int | None]) -> int | None:
    known = Counter(value for value in values if value is not None)
    return max(known, key=known.__getitem__, default=None)
