"""What is asked: the prompt, the model with the arguments of the call, and how long an
answer may take.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from langchain_core.language_models import LanguageModelInput
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs

from langchain_reasc.answers import units_are_loaded
from langchain_reasc.models.prepared import to_messages
from langchain_reasc.models.settings import without_cache_marks
from langchain_reasc.runnable.escalation import Asked, as_readable
from langchain_reasc.runnable.plan import Plan
from langchain_reasc.runnable.setup import Setup, running_fingerprint
from langchain_reasc.sampling import Cutoff, QuestionClock


class Request:
    """One input, as it is put to the model.

    Args:
        setup: how it is answered.
        value: the input.
        config: the config of the run above the samples' own; its ``max_concurrency``
            bounds those in flight.
        kwargs: passed to every call of the model.
        is_async: whether it is answered in an event loop.
        cutoff: tells when the whole call is given up.
        large_kwargs: passed to every call of the large model instead, as far as it
            understands them; None for the same.
        asked: which of two models this is; None for the small one if there is a large
            one, else the only one.

    Raises:
        ConfigurationError: a chat model does not accept this input.
        LogprobsUnavailable: the model that the config chooses is known to give no
            confidence where one is needed.
    """

    def __init__(
        self,
        setup: Setup,
        value: LanguageModelInput,
        config: RunnableConfig,
        kwargs: Mapping[str, Any] | None = None,
        *,
        is_async: bool = False,
        cutoff: Cutoff | None = None,
        large_kwargs: Mapping[str, Any] | None = None,
        asked: Asked | None = None,
    ) -> None:
        self.setup, self.config, self.is_async = setup, config, is_async
        self.asked: Asked | None = "small" if setup.large else asked
        self._large_kwargs = kwargs if large_kwargs is None else large_kwargs
        self.clock = QuestionClock(
            question=setup.options.timeout, sample=setup.options.sample_timeout
        )
        self.model = setup.model.resolved(config, kwargs)
        if self.model.no_logprobs:
            setup.require_confidence(self.model)
        self._given = self.messages = to_messages(value)
        if self.asked:
            self.model, self.messages = as_readable(self.asked, self.model, self._given)
        self.cutoff = cutoff or Cutoff()
        self.prompt_tokens: int | None = None

    @cached_property
    def kind(self) -> str:
        """The kind of request, where something is learned online about each kind."""
        options = self.setup.options
        if not (self.setup.online or self.setup.large):
            return ""
        return running_fingerprint(
            self.model,
            self.messages,
            prompt=options.fixed_prompt,
            answer=options.answer,
        ).kind

    def plan(self) -> Plan:
        """Return the plan for this kind of request, by the calibration in use.

        Raises:
            FingerprintMismatch: the calibration was measured on something else.
        """
        setup, online = self.setup, self.setup.online
        if setup.calibration:
            setup.require_fit(setup.calibration, self.model, self.messages)
        if online is None:
            return setup.plan(setup.learned)
        calibration = online.calibration_for(self.kind)
        plan = setup.plan(calibration)
        return replace(
            plan, notices=(online.notice(calibration, self.kind), *plan.notices)
        )

    def to_large(self) -> "Request":
        """Return the request as it is put to the large model, in what is left of the
        time.
        """
        large = self.setup.large
        assert large is not None
        config = (
            merge_configs(large.config, self.config) if large.config else self.config
        )
        model = large.setup.model.resolved(config)
        kwargs = {
            **large.arguments,
            **self.model.settings_for(model, self._large_kwargs or {}),
        }
        messages = (
            self._given
            if self.model.shares_client_with(model)
            else without_cache_marks(self._given)
        )
        request = Request(
            large.setup,
            messages,
            config,
            kwargs,
            is_async=self.is_async,
            cutoff=self.cutoff,
            asked="large",
        )
        request.clock = self.clock
        return request

    @property
    def reads_in_thread(self) -> bool:
        """Whether reading a response may take too long for the event loop."""
        may_block = (
            self.setup.extract.blocks
            or self.model.runs_functions
            or not units_are_loaded()
        )
        return self.is_async and may_block

    @cached_property
    def estimated_prompt_tokens(self) -> int:
        """About how many tokens the prompt has."""
        return self.model.prompt_tokens(self.messages)
