"""The confidences of one question's responses, and what there is to say about them."""

from collections import Counter

from langchain_core.messages import AIMessage

from langchain_reasc.answers import Extractor, Vote, places_of
from langchain_reasc.calibration import Calibration, check_made_of
from langchain_reasc.exceptions import ConfidenceError, FingerprintMismatch, LogprobsUnavailable
from langchain_reasc.method.confidence import Measure
from langchain_reasc.models.logprobs import Provenance, SignalReading, read_signals

__all__ = ["Scorer"]


class Scorer:
    """Scores the responses to one question, in launch order.

    Args:
        measure: how responses are scored; None reads no confidence.
        calibration: what the scores will be compared with. The first response that shows another signal, k or V behind
            them is refused; a later one is without confidence. None compares nothing.
        required: whether a response without confidence is an error.
        extract: what finds the answers; a score over the tokens of an answer, or of the last step, asks it where they
            are.

    Attributes:
        first_made_of: the ``top_k`` and ``vocabulary_size`` that the first score was made of.
    """

    def __init__(
        self, measure: Measure | None, *, calibration: Calibration | None, required: bool, extract: Extractor
    ) -> None:
        self._measure, self._calibration, self._required = measure, calibration, required
        self._extract = extract
        self._agreed = False
        self._odd: Counter[str] = Counter()  # what was odd about log-probabilities -> responses
        self._reasons: list[str] = []
        self.first_made_of = Provenance(top_k=None, vocabulary_size=None)

    def score(self, message: AIMessage, vote: Vote) -> float | None:
        """S(y), or None where no confidence is asked for or can be read.

        Args:
            message: the response.
            vote: what it votes for: that of a tool call is weighed by the call's own tokens, where they can be told.
                Without an answer there is no vote to weigh, so nothing is missed.

        Raises:
            LogprobsUnavailable: it carries no usable log-probabilities, and they are required.
            ConfidenceError: its signals are empty or not finite, and they are required.
            FingerprintMismatch: the calibration was made of another signal, k or V.
        """
        if self._measure is None:
            return None
        try:
            return self._read(message, self._measure, vote)
        except (LogprobsUnavailable, ConfidenceError) as error:
            if vote.answer is not None:
                if self._required:
                    raise
                self._reasons.append(str(error))
            return None

    @property
    def missed(self) -> int:
        """Votes that have no confidence and count as one each."""
        return len(self._reasons)

    def notices(self, responses: int) -> list[str]:
        """What the caller should know of the confidences of this many responses."""
        said = [f"{what} (in {count} of {responses} responses)" for what, count in self._odd.items()]
        if self._reasons:
            missing = f"{self.missed} of {responses} responses carry no confidence and count as one vote each"
            said.insert(0, f"{missing}: {self._reasons[0]}")
        return said

    def _read(self, message: AIMessage, measure: Measure, vote: Vote) -> float:
        places = places_of(message, self._extract, vote) if measure.of_span else None
        reading = read_signals(message, of_calls=vote.calls, places=places)
        self._compare(reading)
        score = reading.score(measure)
        self._odd.update(reading.notices)
        if not self._agreed:
            self._agreed, self.first_made_of = True, reading.provenance(measure.signal)
        return score

    def _compare(self, reading: SignalReading) -> None:
        if self._calibration is None or self._calibration.signal is None:
            return
        try:
            check_made_of(
                self._calibration,
                carried=[*reading.signals, *reading.withheld],
                **reading.provenance(self._calibration.signal),
            )
        except FingerprintMismatch as error:
            if not self._agreed:
                raise
            raise LogprobsUnavailable(str(error)) from error
