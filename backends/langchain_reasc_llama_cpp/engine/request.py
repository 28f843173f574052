"""Requests to the engine, and its events."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from langchain_reasc_backend.bridge import End

from langchain_reasc_llama_cpp.grammar.grammar import Grammar
from langchain_reasc_llama_cpp.sampling.parameters import SamplingParameters


@dataclass(frozen=True, slots=True)
class Measures:
    """The numbers to compute for every generated token.

    Attributes:
        signals: names of token signals.
        k: the number of alternatives that ``top_k`` averages, at most V.
        logprobs: the number of likeliest tokens to report in OpenAI's form; None for no
            logprobs.
    """

    signals: tuple[str, ...] = ()
    k: int = 20
    logprobs: int | None = None

    def __bool__(self) -> bool:
        """Return whether there is anything to compute."""
        return bool(self.signals) or self.logprobs is not None


measures = lru_cache(maxsize=64)(Measures)
"""Makes equal :class:`Measures` one object, because they are compared for every token.
"""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text of a sample, only for requests that stream.

    ``logprobs`` are those of the tokens since the last event, if the request asked for
    them.
    """

    index: int
    text: str
    logprobs: list[dict[str, Any]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A sample that has ended.

    Attributes:
        index: the sample's index.
        seed: the seed that it was drawn with.
        text: the sample's text, without the stop string that ended it.
        signals: name -> one float per generated token.
        finish_reason: "stop" (end token or stop string), "length" or "cancelled".
        prompt_tokens: the number of tokens of the prompt.
        cached_tokens: the number of prompt tokens that needed no prefill for this
            sample.
        output_tokens: the number of generated tokens, including the end token.
        sizes: the bytes of each token's text, which a stop string may have cut; None
            without signals.
        logprobs: one entry per generated token in OpenAI's form (``token``, ``bytes``,
            ``logprob``, ``top_logprobs``), except those streamed with text; None if the
            request did not ask for them.
        timing: seconds ``queued`` before the first work on the prompt, for its
            ``prefill`` (0 if it was cached), and for the ``decode`` of the sample
            together with others.
    """

    index: int
    seed: int
    text: str
    signals: dict[str, list[float]]
    finish_reason: str
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    sizes: list[int] | None = None
    logprobs: list[dict[str, Any]] | None = None
    timing: dict[str, float] = field(default_factory=dict)


Event = TextDelta | Completion | End
"""The engine's events: text, samples, and one end, with an error if the request failed.
"""


@dataclass(eq=False, kw_only=True)
class GenerationRequest:
    """n samples of one prompt.

    Attributes:
        prompt: the prompt's token ids, shape (P,), P ≥ 1.
        samples: the indices of the samples; sample i is drawn with ``seed + i``.
        seed: see ``samples``.
        sampling: how tokens are drawn.
        max_tokens: the most tokens per sample.
        stop: strings that end a sample, in UTF-8.
        measures: the signals and log-probabilities to compute.
        grammar: the grammar of the response, or None.
        stream: whether to send text while it is generated.
        emit: called with each event in the engine's thread. It must not block or raise.
        cancelled: set by ``Engine.cancel``, and checked between decode steps.
    """

    prompt: npt.NDArray[np.int32]
    samples: range
    seed: int
    sampling: SamplingParameters
    max_tokens: int
    emit: Callable[[Event], None]
    stop: tuple[bytes, ...] = ()
    measures: Measures = field(default_factory=measures)
    grammar: Grammar | None = None
    stream: bool = False
    cancelled: bool = field(default=False, init=False)
