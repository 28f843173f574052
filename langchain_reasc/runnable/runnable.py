"""``ReASCRunnable``: a more reliable answer for fewer tokens, as a step in any LangChain chain."""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, cast

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig, RunnableSerializable
from pydantic import ConfigDict

from langchain_reasc.runnable.batch import Batch, Outcome
from langchain_reasc.runnable.face import Face
from langchain_reasc.runnable.options import refuse_swallowed
from langchain_reasc.runnable.progress import Progress
from langchain_reasc.runnable.result import ReASCResult
from langchain_reasc.runnable.session import ResponseListener
from langchain_reasc.runnable.shared_batch import SharedBatch
from langchain_reasc.runnable.total_budget import Total
from langchain_reasc.sampling.runs import AsyncRun, Run

__all__ = ["ReASCRunnable"]


class ReASCRunnable(Face, RunnableSerializable[LanguageModelInput, AIMessage]):
    """Samples a chat model until the evidence for one answer is sufficient (ReASC).

    Stands where the model stood: ``prompt | ReASCRunnable(model=llm, calibration="calibration.json") | parser``. The
    output is the winning response; ``response_metadata["reasc"]`` says what was decided and spent, and
    ``usage_metadata`` is the bill of all samples. Each sample is a traced run of its own below this one.

    Assigning to a field, and ``model_copy(update=...)``, check and prepare everything anew. Pickling keeps the options;
    LangChain's own serialization (``dumps``) writes that it cannot be loaded again, since a model may be anything.

    Example:
        >>> reasc = ReASCRunnable(model=llm, calibration="calibration.json")
        >>> message = reasc.invoke("What is 12 times 17?")
        >>> message.response_metadata["reasc"]["samples"]
        1
    """

    model_config = ConfigDict(extra="forbid")  # which LangChain's base would loosen

    def invoke(self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any) -> AIMessage:
        """The winning response.

        Args:
            input: whatever the chat model takes: a string, messages, a prompt value.
            config: callbacks, tags, metadata, run name; ``max_concurrency`` bounds the samples in flight.
            **kwargs: passed to every call of the model.

        Raises:
            SamplingError: no sample could be drawn; SampleTimeout where that is because none ended in time.
            LogprobsUnavailable: a calibration needs logprobs and the model returned none.
            FingerprintMismatch: the calibration was made with other system messages.
        """
        refuse_swallowed(kwargs)
        return self._run(input, config).last(lambda below: self._solved(input, below, None, kwargs).message)

    async def ainvoke(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AIMessage:
        """The asynchronous :meth:`invoke`."""
        refuse_swallowed(kwargs)

        async def answered(below: RunnableConfig) -> AIMessage:
            return (await self._asolved(input, below, None, kwargs)).message

        return await self._arun(input, config).last(answered)

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
        return self._run(input, config).last(lambda below: self._solved(input, below, on_response, kwargs))

    async def asolve(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        on_response: ResponseListener | None = None,
        **kwargs: Any,
    ) -> ReASCResult:
        """The asynchronous :meth:`solve`."""
        return await self._arun(input, config).last(lambda below: self._asolved(input, below, on_response, kwargs))

    def batch(
        self,
        inputs: Sequence[LanguageModelInput],
        config: RunnableConfig | list[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        progress: Progress = None,
        total_tokens: int | None = None,
        total_samples: int | None = None,
        **kwargs: Any,
    ) -> list[AIMessage]:
        """One winning response per input; ``calibration="mixture"`` calibrates on all first responses (Algorithm 2).

        Args:
            inputs: whatever the chat model takes.
            config: one for all inputs, or one each; ``max_concurrency`` bounds the samples in flight of all together.
            return_exceptions: whether an input that fails gives its error; else the first error ends the batch, and
                what runs beside it is cut off.
            progress: True for a bar (in a terminal or a notebook), or a function called with (inputs answered, inputs).
            total_tokens: prompt and generated tokens that all inputs together may cost. Each is sampled once, then
                round by round those are that gain most by it, until the tokens are spent or nothing is undecided; what
                is undecided then has its best answer so far. A round is ``max_concurrency`` samples, else an eighth of
                the inputs. What is in flight when the tokens are spent may go beyond them.
            total_samples: samples that all inputs together may take, likewise.
            **kwargs: passed to every call of the model.
        """
        batch = self._batch(inputs, config, return_exceptions, progress, Total(total_tokens, total_samples), kwargs)
        outcomes = dict(batch.completed())
        return [cast(AIMessage, outcomes[index]) for index in range(len(inputs))]

    async def abatch(
        self,
        inputs: Sequence[LanguageModelInput],
        config: RunnableConfig | list[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        progress: Progress = None,
        total_tokens: int | None = None,
        total_samples: int | None = None,
        **kwargs: Any,
    ) -> list[AIMessage]:
        """The asynchronous :meth:`batch`."""
        batch = self._batch(inputs, config, return_exceptions, progress, Total(total_tokens, total_samples), kwargs)
        outcomes = dict([outcome async for outcome in batch.acompleted()])
        return [cast(AIMessage, outcomes[index]) for index in range(len(inputs))]

    def batch_as_completed(  # type: ignore[override]
        self,
        inputs: Sequence[LanguageModelInput],
        config: RunnableConfig | Sequence[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        progress: Progress = None,
        total_tokens: int | None = None,
        total_samples: int | None = None,
        **kwargs: Any,
    ) -> Iterator[Outcome]:
        """(index, winning response) in order of completion; arguments as those of :meth:`batch`."""
        batch = self._batch(inputs, config, return_exceptions, progress, Total(total_tokens, total_samples), kwargs)
        return batch.completed()

    def abatch_as_completed(  # type: ignore[override]
        self,
        inputs: Sequence[LanguageModelInput],
        config: RunnableConfig | Sequence[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        progress: Progress = None,
        total_tokens: int | None = None,
        total_samples: int | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[Outcome]:
        """The asynchronous :meth:`batch_as_completed`."""
        batch = self._batch(inputs, config, return_exceptions, progress, Total(total_tokens, total_samples), kwargs)
        return batch.acompleted()

    def _solved(
        self, input: LanguageModelInput, below: RunnableConfig, on_response: ResponseListener | None, kwargs: Any
    ) -> ReASCResult:
        question = self._solver.question(input, below, kwargs, on_response=on_response)
        return self._solver.solve(question, below)

    async def _asolved(
        self, input: LanguageModelInput, below: RunnableConfig, on_response: ResponseListener | None, kwargs: Any
    ) -> ReASCResult:
        question = self._solver.question(input, below, kwargs, on_response=on_response)
        return await self._solver.asolve(question, below)

    def _run(self, input: LanguageModelInput, config: RunnableConfig | None) -> Run:
        return Run(self.get_name(), input, config)

    def _arun(self, input: LanguageModelInput, config: RunnableConfig | None) -> AsyncRun:
        return AsyncRun(self.get_name(), input, config)

    def _batch(
        self,
        inputs: Sequence[LanguageModelInput],
        config: RunnableConfig | Sequence[RunnableConfig] | None,
        return_exceptions: bool,
        progress: Progress,
        total: Total,
        kwargs: dict[str, Any],
    ) -> Batch:
        refuse_swallowed(kwargs)
        asked = (self._solver, self.get_name(), inputs, config, kwargs)
        options: Any = {"return_exceptions": return_exceptions, "progress": progress}
        if total == Total(None, None):
            return Batch(*asked, **options)
        return SharedBatch(*asked, **options, total=total)
