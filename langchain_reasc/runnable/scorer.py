"""The confidences of one question's responses, and what there is to say about them."""

from collections import Counter

from langchain_core.messages import AIMessage

from langchain_reasc.answers import Extractor, Places, Vote, places_of
from langchain_reasc.calibration import Calibration, check_made_of
from langchain_reasc.exceptions import ConfidenceError, FingerprintMismatch, LogprobsUnavailable
from langchain_reasc.method.confidence import Measure
from langchain_reasc.models.contract import LOGPROBS_REFUSED
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
        learning: whether the token signals of all responses are kept, to learn from. Then none of them is refused.

    Attributes:
        readings: the token signals of each response, None where it carries none; empty unless they are kept.
        first_made_of: the ``top_k`` and ``vocabulary_size`` that the first score was made of.
    """

    def __init__(
        self,
        measure: Measure | None,
        *,
        calibration: Calibration | None,
        required: bool,
        extract: Extractor,
        learning: bool = False,
    ) -> None:
        self._measure, self._calibration, self._required = measure, calibration, required
        self._extract = extract
        self._learning, self.readings = learning, list[SignalReading | None]()
        self._agreed = False
        self._odd: Counter[str] = Counter()  # what was odd about log-probabilities -> responses
        self._reasons: list[str] = []
        self._refused: str | None = None  # why the server gives no logprobs
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
        if self._measure is None and not self._learning:
            return None
        reading = None
        self._refused = self._refused or message.response_metadata.get(LOGPROBS_REFUSED)
        try:
            reading = read_signals(message, of_calls=vote.calls, places=self._places(message, vote))
            return None if self._measure is None else self._scored(reading, self._measure)
        except (LogprobsUnavailable, ConfidenceError) as error:
            if self._measure is not None and vote.answer is not None:
                if self._required:
                    raise
                self._reasons.append(str(error))
            return None
        finally:
            if self._learning:
                self.readings.append(reading if vote.answer is not None else None)

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
        elif self._refused:
            said.append(f"asked without logprobs, which the model's server refuses: {self._refused}")
        return said

    def _places(self, message: AIMessage, vote: Vote) -> Places | None:
        """Where the answer stands, where a score over its tokens asks for that."""
        return places_of(message, self._extract, vote) if self._measure and self._measure.of_span else None

    def _scored(self, reading: SignalReading, measure: Measure) -> float:
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
            if not (self._agreed or self._learning):
                raise
            raise LogprobsUnavailable(str(error)) from error
