"""Answering a question: samples are drawn until the decision falls. Every face of ReASC is composed of a solver."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import aclosing, closing, contextmanager
from dataclasses import dataclass
from typing import TypeVar

from langchain_core.messages import AIMessageChunk
from langchain_core.runnables import RunnableConfig

from langchain_reasc.exceptions import LogprobsUnavailable, SamplingError
from langchain_reasc.models.event_loop import aimport_deferred
from langchain_reasc.models.prepared import PreparedModel
from langchain_reasc.runnable.ballot import refuse_async
from langchain_reasc.runnable.question import Question, Start
from langchain_reasc.runnable.result import ReASCResult
from langchain_reasc.runnable.session import Session
from langchain_reasc.runnable.terms import Terms
from langchain_reasc.sampling import Sample, Wave, adrawn, apassed_on, drawn, passed_on
from langchain_reasc.sampling.slots import AsyncSlots, Places, Slots

__all__ = ["Solver"]

T = TypeVar("T")
Launch = Callable[[int], range]
"""Given how many samples may be launched, says which ones those are."""


@dataclass(frozen=True, kw_only=True)
class Solver(Terms):
    """What answers questions on its terms: samples are drawn until the decision falls."""

    def first(self, question: Question, config: RunnableConfig) -> Sample:
        """The first sample alone, after which the question's clock is paused."""
        [(sample, _)] = self._drawn(drawn, question, 1, range, config)
        question.clock.pause()
        return sample

    async def afirst(self, question: Question, config: RunnableConfig) -> Sample:
        """The asynchronous :meth:`first`."""
        await self._restore()
        [(sample, _)] = [pair async for pair in self._adrawn(adrawn, question, 1, range, config)]
        question.clock.pause()
        return sample

    def solve(self, question: Question, config: RunnableConfig, *, start: Start | None = None) -> ReASCResult:
        """Sample until the decision falls.

        Args:
            question: what is asked.
            config: the config of the run above the samples' own; its ``max_concurrency`` bounds those in flight.
            start: the first sample and its calibration, where they are given.

        Raises:
            ReASCError: as :meth:`~langchain_reasc.ReASCRunnable.invoke`.
        """
        refuse_async(question.deserves_vote)
        session = self.session(question, start, config)
        with _accounted(session, question):
            if start and start.sample.status == "complete":
                _considered(session, start.sample, question.model)
            while wanted := session.wanted:
                self.advance(session, question, wanted, config)
            return self.result(session)

    async def asolve(self, question: Question, config: RunnableConfig, *, start: Start | None = None) -> ReASCResult:
        """The asynchronous :meth:`solve`."""
        await self._restore()
        session = self.session(question, start, config)
        with _accounted(session, question):
            if start and start.sample.status == "complete":
                await self._aconsidered(session, start.sample, question)
            while wanted := session.wanted:
                await self.aadvance(session, question, wanted, config)
            return await self.aresult(session)

    def stream(self, question: Question, config: RunnableConfig) -> Generator[AIMessageChunk | ReASCResult]:
        """:meth:`solve`, with the chunks of a first response while they come where it is ``live``; last the result.

        Args:
            question: what is asked.
            config: the config of the run above the samples' own; its ``max_concurrency`` bounds those in flight.

        Raises:
            Exception: what the response failed with, once a chunk of it is passed on.
            ReASCError: as :meth:`solve`.
        """
        refuse_async(question.deserves_vote)
        session = self.session(question, None, config)
        with _accounted(session, question):
            while wanted := session.wanted:
                if question.live and not session.has_response:
                    yield from self._first_passed_on(session, question, config)
                else:
                    self.advance(session, question, wanted, config)
            yield self.result(session)

    async def astream(self, question: Question, config: RunnableConfig) -> AsyncGenerator[AIMessageChunk | ReASCResult]:
        """The asynchronous :meth:`stream`."""
        await self._restore()
        session = self.session(question, None, config)
        with _accounted(session, question):
            while wanted := session.wanted:
                if question.live and not session.has_response:
                    async with aclosing(self._afirst_passed_on(session, question, config)) as chunks:
                        async for chunk in chunks:
                            yield chunk
                else:
                    await self.aadvance(session, question, wanted, config)
            yield await self.aresult(session)

    def _first_passed_on(
        self, session: Session, question: Question, config: RunnableConfig
    ) -> Generator[AIMessageChunk]:
        begun = False
        with closing(self._drawn(passed_on, question, 1, session.launch, config)) as drawing:
            for item, _ in drawing:
                if isinstance(item, AIMessageChunk):
                    begun = True
                    yield item
                else:
                    session.judge(item)
                    _considered(session, item, question.model)
                    _raise_if_broken_off(item, begun)
        self.limit(session, question)

    async def _afirst_passed_on(
        self, session: Session, question: Question, config: RunnableConfig
    ) -> AsyncGenerator[AIMessageChunk]:
        begun = False
        async with aclosing(self._adrawn(apassed_on, question, 1, session.launch, config)) as drawing:
            async for item, _ in drawing:
                if isinstance(item, AIMessageChunk):
                    begun = True
                    yield item
                else:
                    await session.ajudge(item)
                    await self._aconsidered(session, item, question)
                    _raise_if_broken_off(item, begun)
        self.limit(session, question)

    async def _restore(self) -> None:
        """Read what was learned online, in a thread."""
        if self.online:
            await asyncio.to_thread(self.online.restore)

    async def aresult(self, session: Session) -> ReASCResult:
        """The asynchronous :meth:`result`."""
        if self.mixture is None:
            return self.result(session)
        return await asyncio.to_thread(self.result, session)  # it may fit a mixture

    def advance(self, session: Session, question: Question, wanted: int, config: RunnableConfig) -> None:
        """Draw up to ``wanted`` samples, as many as there are places for, and decide on them."""
        with closing(self._drawn(drawn, question, wanted, session.launch, config)) as samples:
            for sample, wave in samples:
                session.judge(sample)
                if _considered(session, sample, question.model):
                    wave.cutoff.stop()
        self.limit(session, question)

    async def aadvance(self, session: Session, question: Question, wanted: int, config: RunnableConfig) -> None:
        """The asynchronous :meth:`advance`."""
        async with aclosing(self._adrawn(adrawn, question, wanted, session.launch, config)) as samples:
            async for sample, wave in samples:
                await session.ajudge(sample)
                if await self._aconsidered(session, sample, question):
                    wave.cutoff.stop()
        self.limit(session, question)

    async def _aconsidered(self, session: Session, sample: Sample, question: Question) -> bool:
        await aimport_deferred()
        if not self.extract.blocks:
            return _considered(session, sample, question.model)
        try:
            return await asyncio.to_thread(_considered, session, sample, question.model)
        except asyncio.CancelledError:
            question.cutoff.give_up()  # or its thread would go on comparing answers
            raise

    def _drawn(
        self,
        draw: Callable[[Wave], Generator[T]],
        question: Question,
        wanted: int,
        launch: Launch,
        config: RunnableConfig,
    ) -> Generator[tuple[T, Wave]]:
        """A wave of up to ``wanted`` samples, as many as there are places for."""
        question.clock.pause()
        slots = Slots.of(self.model.origin, config)
        taken = slots.take(wanted, question.cutoff)
        question.clock.resume()
        if not taken:
            raise SamplingError("given up, because the call was interrupted or another input of its batch failed")
        indices = launch(taken)
        places = Places(slots, indices)
        wave = question.wave(indices, config, ended=places.give_back)
        try:
            with question.cutoff.heard_by(wave.cutoff.give_up), closing(draw(wave)) as samples:
                for sample in samples:
                    if isinstance(sample, Sample):
                        places.give_back(sample.index)
                    yield sample, wave
        finally:
            places.close()
            question.prompt_tokens = wave.cutoff.prompt_tokens

    async def _adrawn(
        self,
        draw: Callable[[Wave], AsyncGenerator[T]],
        question: Question,
        wanted: int,
        launch: Launch,
        config: RunnableConfig,
    ) -> AsyncGenerator[tuple[T, Wave]]:
        """The asynchronous :meth:`_drawn`."""
        question.clock.pause()
        slots = AsyncSlots.of(self.model.origin, config)
        indices = launch(await slots.take(wanted))
        question.clock.resume()
        places = Places(slots, indices)
        wave = question.wave(indices, config, ended=places.give_back)
        try:
            async with aclosing(draw(wave)) as samples:
                async for sample in samples:
                    if isinstance(sample, Sample):
                        places.give_back(sample.index)
                    yield sample, wave
        finally:
            places.close()
            question.prompt_tokens = wave.cutoff.prompt_tokens


@contextmanager
def _accounted(session: Session, question: Question) -> Iterator[None]:
    """At the end of the block, tell what was spent: of a question that failed, too."""
    try:
        yield
    finally:
        if question.on_spent:
            question.on_spent(session.tokens, session.launched)


def _considered(session: Session, sample: Sample, model: PreparedModel) -> bool:
    """Whether the decision has fallen; an error says if the model was never asked for what is missing."""
    try:
        return session.add(sample)
    except LogprobsUnavailable as error:
        if model.unasked is None:
            raise
        raise LogprobsUnavailable(f"{error}. {model.unasked}") from error


def _raise_if_broken_off(sample: Sample, begun: bool) -> None:
    """Raise what a sample failed with of which a part is passed on: no other can go on from there."""
    if begun and sample.status != "complete":
        raise sample.error or SamplingError("the response was given up before it had ended")
