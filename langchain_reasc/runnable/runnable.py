"""``ReASCRunnable``: a more reliable answer for fewer tokens, as a step in any LangChain chain."""

import asyncio
import threading
from contextlib import aclosing, closing
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForChainRun, CallbackManagerForChainRun
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import patch_config

from langchain_reasc.calibration import check_fingerprint
from langchain_reasc.exceptions import LogprobsUnavailable
from langchain_reasc.models.prepared import PreparedModel, to_messages
from langchain_reasc.runnable.configuration import Configured
from langchain_reasc.runnable.online_batch import TransductiveStart
from langchain_reasc.runnable.result import ReASCResult
from langchain_reasc.runnable.session import ResponseListener, Session
from langchain_reasc.sampling import Sample, awave, wave

__all__ = ["ReASCRunnable"]


class ReASCRunnable(Configured):
    """Samples a chat model until the evidence for one answer is sufficient (ReASC).

    Stands where the model stood: ``prompt | ReASCRunnable(model=llm, calibration="calibration.json") | parser``. The
    output is the winning response; ``response_metadata["reasc"]`` says what was decided and spent, and
    ``usage_metadata`` is the bill of all samples. Each sample is a traced run of its own below this one.

    Example:
        >>> reasc = ReASCRunnable(model=llm, calibration="calibration.json")
        >>> message = reasc.invoke("What is 12 times 17?")
        >>> message.response_metadata["reasc"]["samples"]
        1
    """

    @classmethod
    def get_lc_namespace(cls) -> list[str]:
        """Where LangChain's serialization finds the class."""
        return ["langchain_reasc", "runnable"]

    def invoke(self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any) -> AIMessage:
        """The winning response.

        Args:
            input: whatever the chat model takes: a string, messages, a prompt value.
            config: callbacks, tags, metadata, run name.
            **kwargs: passed to every call of the model.

        Raises:
            SamplingError: no sample could be drawn; SampleTimeout where that is because none ended in time.
            LogprobsUnavailable: a calibration needs logprobs and the model returned none.
            FingerprintMismatch: the calibration was made with other system messages.
        """
        return self._call_with_config(self._answer, input, config, run_type="chain", **kwargs)

    async def ainvoke(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AIMessage:
        """The asynchronous :meth:`invoke`."""
        return await self._acall_with_config(self._aanswer, input, config, run_type="chain", **kwargs)

    def solve(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        on_response: ResponseListener | None = None,
        **kwargs: Any,
    ) -> ReASCResult:
        """:meth:`invoke` with everything behind the answer.

        Args:
            input: whatever the chat model takes.
            config: callbacks, tags, metadata, run name.
            on_response: called with each response and the decision after it, in launch order.
            **kwargs: passed to every call of the model.
        """
        traced: Any = self._call_with_config
        result: ReASCResult = traced(self._solve, input, config, run_type="chain", on_response=on_response, **kwargs)
        return result

    async def asolve(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        on_response: ResponseListener | None = None,
        **kwargs: Any,
    ) -> ReASCResult:
        """The asynchronous :meth:`solve`."""
        traced: Any = self._acall_with_config
        run = traced(self._asolve, input, config, run_type="chain", on_response=on_response, **kwargs)
        result: ReASCResult = await run
        return result

    def _answer(
        self, input: LanguageModelInput, run_manager: CallbackManagerForChainRun, config: RunnableConfig, **kwargs: Any
    ) -> AIMessage:
        return self._solve(input, run_manager, config, **kwargs).message

    async def _aanswer(
        self,
        input: LanguageModelInput,
        run_manager: AsyncCallbackManagerForChainRun,
        config: RunnableConfig,
        **kwargs: Any,
    ) -> AIMessage:
        return (await self._asolve(input, run_manager, config, **kwargs)).message

    def _solve(
        self,
        input: LanguageModelInput,
        run_manager: CallbackManagerForChainRun,
        config: RunnableConfig,
        *,
        on_response: ResponseListener | None = None,
        start: TransductiveStart | None = None,
        **kwargs: Any,
    ) -> ReASCResult:
        messages = to_messages(input)
        source = self._source.bind(kwargs)
        course = self._deliberation(source, messages, config, start, on_response)
        below = patch_config(config, callbacks=run_manager.get_child())
        clock = self._clock()
        while indices := course.next_wave():
            stop = threading.Event()
            with closing(wave(source, messages, indices, below, stop, clock.wave())) as samples:
                for sample in samples:
                    if _considered(course, sample, source):
                        stop.set()
            if clock.over:
                course.expire()
        return self._learn(course)

    async def _asolve(
        self,
        input: LanguageModelInput,
        run_manager: AsyncCallbackManagerForChainRun,
        config: RunnableConfig,
        *,
        on_response: ResponseListener | None = None,
        start: TransductiveStart | None = None,
        **kwargs: Any,
    ) -> ReASCResult:
        messages = to_messages(input)
        source = self._source.bind(kwargs)
        course = self._deliberation(source, messages, config, start, on_response)
        below = patch_config(config, callbacks=run_manager.get_child())
        clock = self._clock()
        while indices := course.next_wave():
            stop = threading.Event()
            async with aclosing(awave(source, messages, indices, below, stop, clock.wave())) as samples:
                async for sample in samples:
                    if _considered(course, sample, source):
                        stop.set()
            if clock.over:
                course.expire()
        return await asyncio.to_thread(self._learn, course) if self._online else course.result()  # it may fit a mixture

    def _deliberation(
        self,
        source: PreparedModel,
        messages: list[BaseMessage],
        config: RunnableConfig,
        start: TransductiveStart | None,
        on_response: ResponseListener | None,
    ) -> Session:
        if self._calibration and not self.allow_fingerprint_mismatch:
            check_fingerprint(self._calibration, source.fingerprint(messages))
        current = start.calibration if start else self.learned
        rule, notices = self._rule(current)
        course = Session(
            rule,
            extract=self._extract,
            measure=current.measure if current else self._online.measure if self._online else None,
            max_samples=self.max_samples,
            concurrency=min(self.concurrency, config.get("max_concurrency") or self.concurrency),
            required=self.on_missing_confidence == "error" and not self._counts(current),
            calibration=None if self.allow_fingerprint_mismatch or self._counts(current) else current,
            notices=(*source.notices, *(start.notices if start else notices)),
            on_response=on_response,
        )
        if start and start.sample.status == "complete":
            _considered(course, start.sample, source)
        return course

    def _learn(self, course: Session) -> ReASCResult:
        result = course.result()
        if self._online and course.first_score is not None:
            self._online.observe(course.first_score, **course.first_made_of)
        return result


def _considered(course: Session, sample: Sample, source: PreparedModel) -> bool:
    """Whether the decision has fallen; an error says if the model was never asked for what is missing."""
    try:
        return course.add(sample)
    except LogprobsUnavailable as error:
        if source.unasked is None:
            raise
        raise LogprobsUnavailable(f"{error}. {source.unasked}") from error
