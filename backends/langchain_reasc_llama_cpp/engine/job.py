"""Requests under way, and the samples they consist of."""

import time
import zlib
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from langchain_reasc_llama_cpp.confidence.recorder import Wanted
from langchain_reasc_llama_cpp.engine.kv_cells import Slot
from langchain_reasc_llama_cpp.engine.prompt_cache import CachedPrompt
from langchain_reasc_llama_cpp.engine.request import Completion, GenerationRequest, Timing
from langchain_reasc_llama_cpp.engine.text import TextAssembler
from langchain_reasc_llama_cpp.sampling.sampler import SamplerChain

__all__ = ["Feed", "Job", "Sequence"]


@dataclass(eq=False, slots=True)
class Sequence:
    """One sample being generated.

    Attributes:
        job: the request that it belongs to.
        index: the sample's index.
        text: the sample's text so far.
        tokens: what was generated so far; the last token is not in the KV cache yet.
        sampler: the sampler chain, with the state of what it drew.
        slot: where it lies in the KV cache; None while it waits for room.
        wanted: what is recorded of its tokens.
        signals: the signals of its tokens, in pieces of shape (number of signals, tokens).
        logprobs: the log-probabilities of its tokens, in pieces too.
        sent: how many of them went out with streamed text.
        began: when its first token was drawn.
    """

    job: "Job"
    index: int
    text: TextAssembler
    sampler: SamplerChain
    wanted: Wanted
    slot: Slot | None = None
    tokens: list[int] = field(default_factory=list)
    signals: list[npt.NDArray[np.floating[Any]]] = field(default_factory=list)
    logprobs: list[dict[str, Any]] = field(default_factory=list)
    sent: int = 0
    began: float = 0.0

    @property
    def age(self) -> tuple[int, int]:
        """Older ones sort first."""
        return self.job.order, self.index


@dataclass(eq=False)
class Job:
    """A request the engine has taken.

    Attributes:
        request: what was asked.
        order: its place in the order of arrival.
        turn: its place in the order of turns: the job with the lowest comes next.
        started: how many samples have begun.
        prompt: its prompt in the KV cache, pinned; None while nothing of this request is there.
        waiting: indices of samples that have not begun.
        set_back: sequences that gave their cells back and wait for room, the oldest first.
        live: sequences that have a slot.
        unfinished: how many samples have not ended.
        prefilled: how many prompt tokens were decoded for this request; None before that is known.
        arrived: when it came.
        begun: when work on its prompt began.
        ready: when its prompt was in the cache.
        left: whether its last event was sent.
        parked: the prompt it let go of between two turns, and comes back to.
    """

    request: GenerationRequest
    order: int
    turn: int = 0
    started: int = 0
    prompt: CachedPrompt | None = None
    set_back: deque[Sequence] = field(default_factory=deque)
    live: list[Sequence] = field(default_factory=list)
    prefilled: int | None = None
    arrived: float = field(default_factory=time.perf_counter)
    begun: float | None = None
    ready: float | None = None
    left: bool = False
    parked: CachedPrompt | None = None

    def __post_init__(self) -> None:
        """Nothing has begun."""
        self.waiting = deque(self.request.samples)
        self.unfinished = len(self.request.samples)
        # One seed for many prompts would tie their samples together: the same draw picks each first token.
        self.salt = zlib.crc32(self.request.prompt.tobytes())

    @property
    def pending(self) -> bool:
        """Whether a sample waits for a slot."""
        return bool(self.waiting or self.set_back)

    @property
    def prefilling(self) -> bool:
        """Whether its prompt is on its way into the cache."""
        return self.prompt is not None and self.prompt.logits is None

    def completion(
        self,
        sequence: Sequence,
        reason: str,
        signals: dict[str, list[float]],
        logprobs: list[dict[str, Any]] | None,
        sizes: list[int] | None,
    ) -> Completion:
        """What is told of a sample that has ended. The first sample pays for the prompt."""
        whole = len(self.request.prompt)
        paid = min(self.prefilled or 0, whole) if sequence.index == self.request.samples.start else 0
        begun, ready = self.begun or self.arrived, self.ready or self.arrived
        return Completion(
            index=sequence.index,
            seed=self.request.seed + sequence.index,
            text=sequence.text.text(),
            signals=signals,
            finish_reason=reason,
            prompt_tokens=whole,
            cached_tokens=whole - paid,
            output_tokens=len(sequence.tokens),
            sizes=sizes,
            logprobs=logprobs,
            timing=Timing(
                queued=begun - self.arrived, prefill=ready - begun, decode=time.perf_counter() - sequence.began
            ),
        )


@dataclass(eq=False)
class Feed:
    """Tokens on their way into the KV cache, several at a time.

    Attributes:
        owner: the job whose prompt they are, or the sequence that resumes.
        slot: where they go.
        tokens: all of these tokens.
        done: how many are there.
        start: the position of the first token.
    """

    owner: Job | Sequence
    slot: Slot
    tokens: npt.NDArray[np.int32]
    done: int
    start: int = 0

    @property
    def left(self) -> int:
        """Tokens still to come."""
        return len(self.tokens) - self.done
