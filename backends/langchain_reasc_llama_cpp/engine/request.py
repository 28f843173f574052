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

__all__ = ["Completion", "Event", "GenerationRequest", "Measures", "TextDelta", "measures"]


@dataclass(frozen=True, slots=True)
class Measures:
    """What to find out about every generated token.

    Attributes:
        signals: token signals by name.
        k: how many alternatives ``top_k`` averages; all V where it is larger.
        logprobs: how many of the likeliest tokens to report in OpenAI's shape; None: no logprobs at all.
    """

    signals: tuple[str, ...] = ()
    k: int = 20
    logprobs: int | None = None

    def __bool__(self) -> bool:
        """Return whether there is anything to find."""
        return bool(self.signals) or self.logprobs is not None


measures = lru_cache(maxsize=64)(Measures)
"""Makes equal :class:`Measures` one object: which samples want the same is looked up for every token."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text of one sample; sent only when the request streams.

    ``logprobs`` are those of the tokens since the last one, where the request asked for them.
    """

    index: int
    text: str
    logprobs: list[dict[str, Any]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One sample, ended.

    Attributes:
        index: the sample's index.
        seed: the seed that it was drawn with.
        text: the sample's text, without the stop string that ended it.
        signals: name -> one float per generated token.
        finish_reason: "stop" (end token or stop string), "length" or "cancelled".
        prompt_tokens: how many tokens the prompt has.
        cached_tokens: how many of them were not prefilled for this sample.
        output_tokens: how many tokens were generated, the end token included.
        sizes: the bytes of each token's text, which a stop string may have cut short; None without signals.
        logprobs: one entry per generated token in OpenAI's shape (``token``, ``bytes``, ``logprob``,
            ``top_logprobs``), except those streamed with text; None where the request did not ask.
        timing: seconds spent ``queued`` before the first work on the prompt, on its ``prefill`` (0 where it was
            cached), and on the ``decode`` of the sample, in which others were decoded beside it.
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
"""What the engine sends: text, samples, and one end, with an error where the request failed."""


@dataclass(eq=False, kw_only=True)
class GenerationRequest:
    """n samples of one prompt.

    Attributes:
        prompt: the prompt's token ids, shape (P,), P ≥ 1.
        samples: the indices of the samples; sample i is drawn with ``seed + i``.
        seed: see ``samples``.
        sampling: how tokens are drawn.
        max_tokens: how many tokens are generated per sample at most.
        stop: strings that end a sample, in UTF-8.
        measures: the signals and log-probabilities to find.
        grammar: what the response must keep to; None: anything.
        stream: whether to send text as it comes.
        emit: called with each event, from the engine's thread; it must neither block nor raise.
        cancelled: set by ``Engine.cancel``, looked at between decode steps.
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
