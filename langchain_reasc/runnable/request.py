"""The request: the prompt, the model with the arguments of the call, and how long an
answer may take.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

from langchain_core.language_models import LanguageModelInput
from langchain_core.runnables import RunnableConfig

from langchain_reasc.answers import units_are_loaded
from langchain_reasc.concurrency import THREADS, Concurrency
from langchain_reasc.models.prepared import to_messages
from langchain_reasc.runnable.decision_plan import DecisionPlan
from langchain_reasc.runnable.history import Role, as_readable
from langchain_reasc.runnable.voter import Voter, running_fingerprint
from langchain_reasc.sampling import Cutoff, QuestionClock

T = TypeVar("T")


class Request:
    """One input, as it is put to the model.

    Args:
        voter: how it is answered.
        value: the input.
        config: the config of the run above the samples' own; its ``max_concurrency``
            bounds those in flight.
        kwargs: passed to every call of the model.
        io: whether it is answered in threads, or in an event loop.
        cutoff: tells when the whole call is given up.
        role: which of two models this is; None if there is one, or for the small one.

    Raises:
        ConfigurationError: a chat model does not accept this input.
        LogprobsUnavailable: the model that the config chooses is known to give no
            confidence where one is needed.
    """

    def __init__(
        self,
        voter: Voter,
        value: LanguageModelInput,
        config: RunnableConfig,
        kwargs: Mapping[str, Any] | None = None,
        *,
        io: Concurrency = THREADS,
        cutoff: Cutoff | None = None,
        role: Role | None = None,
    ) -> None:
        self.voter = voter
        self.config = config
        self.io = io
        self.role: Role | None = "small" if voter.is_small else role
        self.arguments = kwargs or {}
        self.cutoff = cutoff or Cutoff()
        options = voter.options
        self.clock = QuestionClock(
            question=options.timeout, sample=options.sample_timeout
        )
        self.model = voter.model.resolved(config, kwargs)
        if self.model.no_logprobs:
            voter.require_confidence(self.model)
        # Another model may read this history otherwise, see `as_readable`.
        self.history = to_messages(value)
        """The messages as they were given."""
        self.messages = self.history
        if self.role is not None:
            self.model, self.messages = as_readable(self.role, self.model, self.history)
        self.prompt_tokens: int | None = None

    @cached_property
    def kind(self) -> str:
        """The kind of request, where something is learned about each kind."""
        if self.voter.online is None and not self.voter.is_small:
            return ""
        options = self.voter.options
        fingerprint = running_fingerprint(
            self.model,
            self.messages,
            prompt=options.fixed_prompt,
            answer=options.answer,
        )
        return fingerprint.kind

    def plan(self) -> DecisionPlan:
        """Return the plan for this kind of request, by the calibration in use.

        Raises:
            FingerprintMismatch: the calibration was measured on something else.
        """
        voter = self.voter
        if voter.calibration is not None:
            voter.require_fit(voter.calibration, self.model, self.messages)
        if voter.online is None:
            return voter.plan(voter.learned)
        calibration = voter.online.calibration_for(self.kind)
        plan = voter.plan(calibration)
        notice = voter.online.notice(calibration, self.kind)
        return replace(plan, notices=(notice, *plan.notices))

    async def run(self, function: Callable[[], T]) -> T:
        """Call a function that may take long, without blocking an event loop."""
        try:
            return await self.io.run(function)
        except asyncio.CancelledError:
            # Or the thread would go on comparing answers.
            self.cutoff.give_up()
            raise

    async def read(self, function: Callable[[], T]) -> T:
        """Call a function that reads a response, which seldom takes long."""
        is_slow = (
            self.voter.extract.blocks
            or self.model.runs_functions
            or not units_are_loaded()
        )
        if is_slow:
            return await self.run(function)
        return function()

    @cached_property
    def estimated_prompt_tokens(self) -> int:
        """About how many tokens the prompt has."""
        return self.model.prompt_tokens(self.messages)
