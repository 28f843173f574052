"""What is told of samples: their text as it comes, and themselves when they end."""

import time
from collections.abc import Sequence as Many

from langchain_reasc.models.contract import CANCELLED
from langchain_reasc_llama_cpp.confidence.recorder import Recorder
from langchain_reasc_llama_cpp.engine.context import Logits
from langchain_reasc_llama_cpp.engine.request import Completion, TextDelta, Timing
from langchain_reasc_llama_cpp.engine.sequences import Sequence, SequenceGroup
from langchain_reasc_llama_cpp.native.model import NativeModel

__all__ = ["Report"]


class Report:
    """Emits text and completions with the signals and log-probabilities that were recorded of them."""

    def __init__(self, n_parallel: int, model: NativeModel, *, overlapped: bool) -> None:
        """Make it, with nothing recorded yet. For the arguments see :class:`~.decoder.Decoder`."""
        self._recorder: Recorder[Sequence] = Recorder(n_parallel, model, overlapped=overlapped)
        self._model = model

    def record(self, logits: Logits, tokens: Many[int], sequences: Many[Sequence]) -> list[Sequence]:
        """Take the rows of logits that tokens were drawn from; returns samples whose logits were not finite."""
        return self._recorder.record(logits, tokens, sequences)

    def settle(self) -> list[Sequence]:
        """Have all numbers at hand; returns samples whose logits were not finite."""
        return self._recorder.flush()

    def text(self, sequence: Sequence, *, final: bool = False) -> None:
        """Send what can be shown of a sample and was not yet; ``final``: everything."""
        text = sequence.text.delta(final=final)
        if not text:
            return
        request = sequence.group.request
        logprobs = None
        if request.logprobs is not None:
            logprobs = self._recorder.logprobs_since(sequence, sequence.sent)
            sequence.sent += len(logprobs or ())
        request.emit(TextDelta(sequence.index, text, logprobs))

    def ended(self, sequence: Sequence, reason: str) -> None:
        """Send a sample that has ended, and is sound; call :meth:`settle` first."""
        group = sequence.group
        if group.request.stream:
            self.text(sequence, final=True)
        logprobs = self._recorder.logprobs_since(sequence, sequence.sent)
        signals = self._recorder.signals(sequence)
        sizes = [len(self._model.piece(token)[0]) for token in sequence.tokens] if group.request.sized else None
        # The first sample pays for the prompt.
        whole = len(group.request.prompt)
        paid = min(group.prefilled or 0, whole) if sequence.index == group.request.samples.start else 0
        begun, ready = group.begun or group.arrived, group.ready or group.arrived
        group.request.emit(
            Completion(
                index=sequence.index,
                seed=group.request.seed + sequence.index,
                text=sequence.text.text(),
                signals=signals,
                finish_reason=reason,
                prompt_tokens=whole,
                cached_tokens=whole - paid,
                output_tokens=len(sequence.tokens),
                sizes=sizes,
                logprobs=logprobs,
                timing=Timing(
                    queued=begun - group.arrived, prefill=ready - begun, decode=time.perf_counter() - sequence.began
                ),
            )
        )

    def cancelled(self, group: SequenceGroup) -> None:
        """Send what was begun of a request that was cancelled, and is sound; call :meth:`settle` first."""
        for sequence in sorted(group.begun_samples, key=lambda sequence: sequence.index):
            if sequence.tokens:
                self.ended(sequence, CANCELLED)

    def drop(self, sequence: Sequence) -> None:
        """Forget what was recorded of a sample that nobody is told about any more."""
        self._recorder.drop(sequence)

    def close(self) -> None:
        """End the recorder's thread."""
        self._recorder.close()
