"""One input of a call: what is asked, for how long, and where its decision starts from."""

from collections.abc import Callable
from dataclasses import dataclass

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig

from langchain_reasc.calibration import Calibration
from langchain_reasc.models.cutoff import Cutoff
from langchain_reasc.models.prepared import PreparedModel
from langchain_reasc.runnable.ballot import DeservesVote
from langchain_reasc.runnable.observing import FinishedListener
from langchain_reasc.runnable.session import ResponseListener
from langchain_reasc.sampling import Sample, Wave
from langchain_reasc.sampling.time_limit import QuestionClock

__all__ = ["Question", "SpendingListener", "Start"]

SpendingListener = Callable[[int, int], None]
"""Told how many tokens, prompt and generated, and how many samples a question has cost."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where the decision on one input of a batch starts from, when all first responses calibrate (Algorithm 2).

    Attributes:
        sample: its first sample, already drawn.
        calibration: fitted on the first samples of all inputs; None where they determine none.
        notices: what the caller should know.
    """

    sample: Sample
    calibration: Calibration | None
    notices: tuple[str, ...]


@dataclass(slots=True)
class Question:
    """One input of a call.

    Attributes:
        model: what is sampled, with the arguments of the call.
        messages: the prompt.
        clock: how long it has taken.
        cutoff: tells when the whole call is given up.
        on_response: called with each response and the decision after it, in launch order.
        deserves_vote: asked of the first response, which is then launched alone; None puts every one to the vote.
        on_spent: told what it has cost when it is answered, or fails.
        sample_budget: samples that may be launched, where that is fewer than ``max_samples``.
        on_finished: given what can be learned from it, in place of what learns online.
        prompt_tokens: tokens of the prompt, once a response has told.
        live: whether a first response is passed on while it comes, since it will hardly be put to the vote.
    """

    model: PreparedModel
    messages: list[BaseMessage]
    clock: QuestionClock
    cutoff: Cutoff
    on_response: ResponseListener | None = None
    deserves_vote: DeservesVote | None = None
    on_spent: SpendingListener | None = None
    sample_budget: int | None = None
    on_finished: FinishedListener | None = None
    prompt_tokens: int | None = None
    live: bool = False

    def wave(self, indices: range, config: RunnableConfig, *, ended: Callable[[int], object]) -> Wave:
        """Samples to draw now; ``ended`` is told of each that has ended."""
        wave = Wave(self.model, self.messages, indices, config, self.clock.wave(), ended=ended)
        wave.cutoff.prompt_tokens = self.prompt_tokens
        return wave
