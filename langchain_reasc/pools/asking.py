"""Asking a model what a pool records: all samples of a question, a failed one once more, and what they vote for."""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import Runnable

from langchain_reasc.answers import AnswerSpec, Extractor, extractor, places_of, vote_of
from langchain_reasc.calibration.asked import FixedPrompt
from langchain_reasc.data.questions import LabelledQuestion
from langchain_reasc.exceptions import ContextOverflowError, LogprobsUnavailable, SamplingError
from langchain_reasc.models.contract import TOKEN_SIGNALS_INFO
from langchain_reasc.models.daemons import DaemonExecutor
from langchain_reasc.models.logprobs import SignalReading, read_signals
from langchain_reasc.models.prepared import PreparedModel
from langchain_reasc.models.usage import output_tokens, reported_usage
from langchain_reasc.pools.bill import Bill
from langchain_reasc.pools.extraction import kept_of
from langchain_reasc.pools.overflow import is_overflow
from langchain_reasc.pools.store import StoredMessage
from langchain_reasc.sampling import Sample, draw

__all__ = ["Answered", "Asked", "Asking", "Prompts", "ReadResponse", "each_question"]

_SEED_BLOCKS: Final = 1_000_003
_SEEDS: Final = 16  # of a block; a question with more goes on into the next one, which hardly another question has
_CONCURRENCY: Final = 8  # requests at once to a model that does not sample in parallel itself


class Prompts(Protocol):
    """The prompt of each question, as a :class:`~langchain_reasc.data.template.Template` makes it."""

    @property
    def fixed(self) -> FixedPrompt | None:
        """Which part of the prompts is the same for every question."""
        ...

    def messages(self, question: str) -> list[BaseMessage]:
        """The prompt that asks a question; of the empty one, what the others have in common."""
        ...


class Asked(NamedTuple):
    """A question, and how many responses to it there are already."""

    question: LabelledQuestion
    held: int = 0


class ReadResponse(NamedTuple):
    """What was read of one response.

    Attributes:
        columns: what decisions need, by the names of the pool's columns.
        message: what the pool keeps beside.
        reading: its token signals and spans; None where it has none.
        info: what the signals are made of, where the backend says so.
        why_unread: why there is no reading.
    """

    columns: Mapping[str, Any]
    message: StoredMessage
    reading: SignalReading | None
    info: Mapping[str, Any] | None
    why_unread: str | None = None


class Answered(NamedTuple):
    """A question with the responses that were drawn, in launch order.

    Attributes:
        question: the question.
        responses: those that came.
        bill: what they cost, with those that failed.
    """

    question: LabelledQuestion
    responses: Sequence[ReadResponse]
    bill: Bill = Bill()


@dataclass(frozen=True)
class Asking:
    """What is asked, and how. It pickles where the model does, and so can be sent to another process or machine.

    Attributes:
        model: a chat model; one in this process is asked for all samples of a question at once.
        prompt: what stands around each question.
        samples: responses that each question shall have.
        answer: where the answer is in a response.
    """

    model: Runnable[LanguageModelInput, Any]
    prompt: Prompts
    samples: int
    answer: AnswerSpec = "auto"

    def __call__(self, asked: Asked) -> Answered | ContextOverflowError:
        """The responses that a question lacks, or why it has none and never will.

        Sample i of a question has the same seed wherever, whenever and beside whichever others it is drawn.

        Raises:
            SamplingError: some could not be had, even when they were drawn once more.
        """
        question, held = asked
        failed: list[Sample] = []
        drawn = self._drawn(question, held, failed)
        if isinstance(drawn, ContextOverflowError):
            return drawn
        extract = extractor(self.answer)
        read = [_read(one, one.message, extract) for one in drawn if one.message is not None]
        return Answered(question, read, Bill.of_samples([*drawn, *failed]))

    def _drawn(
        self, question: LabelledQuestion, held: int, failed: list[Sample]
    ) -> list[Sample] | ContextOverflowError:
        messages, wanted = self.prompt.messages(question.input), self.samples - held
        concurrency = wanted if PreparedModel.of(self.model).sampler else _CONCURRENCY
        # Were i to start at 0 for each question, all first responses would share one stream of random numbers: one
        # style of answering, not a fair sample.
        block = zlib.crc32(question.id.encode("utf-8", "surrogatepass")) % _SEED_BLOCKS
        drawn = draw(self.model, messages, wanted, first=block * _SEEDS + held, concurrency=concurrency)
        if any(map(_is_whole, drawn)):  # else the model fails altogether
            failed += [one for one in drawn if not _is_whole(one)]
            drawn = [one if _is_whole(one) else draw(self.model, messages, 1, first=one.index)[0] for one in drawn]
        if all(map(_is_whole, drawn)):
            return drawn
        errors = [sample.error for sample in drawn if sample.error is not None]
        if len(errors) == len(drawn) and all(map(is_overflow, errors)):
            return ContextOverflowError(str(errors[0]))
        raise SamplingError(
            f"{len(errors)} of {len(drawn)} samples of question {question.id!r} failed, the first with "
            f"{errors[0]!r}; what was complete before is kept: run the same command again to go on",
            errors,
        )


def each_question(
    asked: Iterable[Asked], ask: Callable[[Asked], Answered | ContextOverflowError], concurrency: int
) -> Iterator[tuple[Asked, Answered | ContextOverflowError]]:
    """Questions with their responses, as they are done; after a failure those in flight still come out."""
    if concurrency == 1:  # in this thread, where Ctrl-C reaches it
        yield from ((one, ask(one)) for one in asked)
        return
    threads = DaemonExecutor(concurrency, "reasc-record")
    waiting, running = iter(asked), dict[Future[Answered | ContextOverflowError], Asked]()
    try:
        while True:
            running |= {threads.submit(ask, one): one for one in islice(waiting, concurrency - len(running))}
            if not running:
                return
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(done), done.result()
    except Exception:
        for other, one in running.items():
            if other.exception() is None:
                yield one, other.result()
        raise
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def _read(sample: Sample, message: AIMessage, extract: Extractor) -> ReadResponse:
    vote = vote_of(message, extract)
    reason, kept = kept_of(message)
    usage = reported_usage(message)
    columns = {
        "answer": vote.answer,
        "cut_off": vote.cut_off,
        "finish_reason": reason,
        "prompt_tokens": usage["input_tokens"] if usage else None,
        "completion_tokens": output_tokens(message),
        "seconds": sample.seconds,
    }
    why = None
    try:
        # Of a vote for tool calls the calls' own tokens, where they can be told, as a live decision would weigh it.
        reading = read_signals(message, of_calls=vote.calls, places=places_of(message, extract, vote))
    except LogprobsUnavailable as error:
        reading, why = None, str(error)
    info = message.response_metadata.get(TOKEN_SIGNALS_INFO)
    return ReadResponse(columns, kept, reading, dict(info) if isinstance(info, Mapping) else None, why)


def _is_whole(sample: Sample) -> bool:
    return sample.status == "complete" and sample.message is not None
