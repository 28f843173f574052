"""What is told of samples: their text as it comes, and themselves when they end."""

from collections.abc import Sequence as Many

from langchain_reasc.exceptions import ReASCError
from langchain_reasc.models.contract import CANCELLED
from langchain_reasc_llama_cpp.confidence.recorder import Recorder
from langchain_reasc_llama_cpp.engine.context import Logits
from langchain_reasc_llama_cpp.engine.job import Job, Sequence
from langchain_reasc_llama_cpp.engine.request import Failed, Finished, TextDelta
from langchain_reasc_llama_cpp.native.model import NativeModel

__all__ = ["Report"]


class Report:
    """Emits text and completions with the signals and log-probabilities that were recorded of them.

    Attributes:
        unsound: sequences whose logits were found not to be finite.
    """

    def __init__(self, n_parallel: int, model: NativeModel, *, overlapped: bool) -> None:
        """Make it, with nothing recorded yet. For the arguments see :class:`~.decoder.Decoder`."""
        self._recorder: Recorder[Sequence] = Recorder(n_parallel, model, overlapped=overlapped)
        self._model = model
        self.unsound: list[Sequence] = []

    def record(self, logits: Logits, tokens: Many[int], sequences: Many[Sequence]) -> None:
        """Take the rows of logits that tokens were drawn from; see :meth:`Recorder.record`."""
        self.unsound += self._recorder.record(logits, tokens, sequences)

    def take_unsound(self) -> list[Sequence]:
        """The sequences found unsound since the last call."""
        unsound, self.unsound = self.unsound, []
        return unsound

    def text(self, sequence: Sequence, *, final: bool = False) -> None:
        """Send what can be shown of a sample and was not yet; ``final``: everything."""
        text = sequence.text.delta(final=final)
        if not text:
            return
        request = sequence.job.request
        logprobs = None
        if request.logprobs is not None:
            logprobs = self._recorder.logprobs_since(sequence, sequence.sent)
            sequence.sent += len(logprobs or ())
        request.emit(TextDelta(sequence.index, text, logprobs))

    def ended(self, sequence: Sequence, reason: str) -> None:
        """Send a sample that has ended.

        Raises:
            ConfidenceError: its logits were not finite.
        """
        self.unsound += self._recorder.flush()
        self._complete(sequence, reason)

    def cancelled(self, job: Job) -> Finished | Failed:
        """Send what was begun of a job; returns the last word about it."""
        self.unsound += self._recorder.flush()
        try:
            for sequence in sorted([*job.live, *job.set_back], key=lambda sequence: sequence.index):
                if sequence.tokens:
                    self._complete(sequence, CANCELLED)
        except ReASCError as error:
            return Failed(error)
        return Finished()

    def drop(self, sequence: Sequence) -> None:
        """Forget what was recorded of a sequence that nobody is told about any more."""
        self._recorder.drop(sequence)

    def close(self) -> None:
        """End the recorder's thread."""
        self._recorder.close()

    def _complete(self, sequence: Sequence, reason: str) -> None:
        job = sequence.job
        if job.request.stream:
            self.text(sequence, final=True)
        logprobs = self._recorder.logprobs_since(sequence, sequence.sent)
        sizes = [len(self._model.piece(token)[0]) for token in sequence.tokens] if job.request.sized else None
        job.request.emit(job.completion(sequence, reason, self._recorder.signals(sequence), logprobs, sizes))
