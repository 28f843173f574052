"""Draw the samples of a question for a pool, retry failed ones once, and read their
votes.
"""

import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

from langchain_core.exceptions import ContextOverflowError as CoreContextOverflowError
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable

from langchain_reasc.answers import (
    AnswerSpec,
    Extractor,
    extractor,
    places_of,
    question_text,
    vote_of,
)
from langchain_reasc.data import LabelledQuestion, Template
from langchain_reasc.exceptions import (
    ContextOverflowError,
    LogprobsUnavailable,
    SamplingError,
)
from langchain_reasc.models.contract import (
    FAILED_ATTEMPTS,
    RECEIVED_TOKENS,
    TOKEN_SIGNALS_INFO,
)
from langchain_reasc.models.prepared import prepare_model
from langchain_reasc.models.signal_reading import (
    SignalReading,
    read_signals,
    token_lengths,
)
from langchain_reasc.models.usage import is_estimated, output_tokens, reported_usage
from langchain_reasc.sampling import SampledResponse, draw_samples
from langchain_reasc.threads import DaemonExecutor
from langchain_reasc_lab.pools.store import Message, PoolResponse

__all__ = [
    "DrawnQuestion",
    "DrawnResponse",
    "PendingQuestion",
    "QuestionSampler",
    "is_overflow",
    "sample_questions",
    "stored_message",
]

_SEED_BLOCKS: Final = 1_000_003
# of a block; a question with more goes on into the next one, which hardly another
# question has
_SEEDS: Final = 16
_CONCURRENCY: Final = (
    8  # requests at once to a model that does not sample in parallel itself
)
# How responses end, in the words of OpenAI, Anthropic, Ollama, Bedrock, Gemini,
# OpenRouter and OpenAI's Responses API.
_ENDINGS: Final = (
    *(
        "finish_reason",
        "stop_reason",
        "done_reason",
        "stopReason",
        "finishReason",
        "native_finish_reason",
        "status",
    ),
    "incomplete_details",
)
# OpenAI, vLLM, SGLang, llama.cpp, TGI, Anthropic, Gemini, Bedrock and Mistral, in this
# order.
_OVERFLOW: Final = re.compile(
    r"context_length_exceeded|maximum context length|longer than the (?:model's context|maximum model) length|"
    r"exceeds? the (?:available )?context (?:size|window)|inputs` tokens \+ `max_new_tokens`|prompt is too long|"
    r"exceeds the maximum number of tokens allowed|input is too long for requested model|"
    r"too large for model with \d+ maximum context",
    re.IGNORECASE,
)


class PendingQuestion(NamedTuple):
    """A question to draw responses to, and how many it has already."""

    question: LabelledQuestion
    held: int = 0


class DrawnResponse(NamedTuple):
    """One response as it is recorded.

    Attributes:
        response: the response as rules see it, without score, spans and signals.
        message: the parts of the message that the pool keeps.
        reading: its token signals and spans; None if it has none.
        info: the signals' provenance, if the backend reports it.
        estimated: whether the provider did not report its tokens.
    """

    response: PoolResponse
    message: Message
    reading: SignalReading | None
    info: Mapping[str, Any] | None
    estimated: bool = False


class DrawnQuestion(NamedTuple):
    """A question with the responses that were drawn, in launch order.

    Attributes:
        question: the question.
        responses: the complete ones.
        failed: samples and requests that gave no response, as far as they are known.
        failed_tokens: tokens that had been generated before they failed.
    """

    question: LabelledQuestion
    responses: Sequence[DrawnResponse]
    failed: int = 0
    failed_tokens: int = 0


@dataclass(frozen=True)
class QuestionSampler:
    """Draws the responses to a question. It pickles where the model does, so it can run
    on another machine.

    Attributes:
        model: a chat model; a local one is given all samples of a question at once.
        prompt: makes the prompt of each question.
        samples: responses that each question shall have.
        answer: where the answer is in a response.
    """

    model: Runnable[LanguageModelInput, Any]
    prompt: Template
    samples: int
    answer: AnswerSpec = "auto"

    def __call__(
        self, pending: PendingQuestion
    ) -> DrawnQuestion | ContextOverflowError:
        """Return the responses that a question lacks, or the error of one that does not
        fit the model's context.

        Sample i of a question has the same seed wherever, whenever and beside whichever
        others it is drawn.

        Raises:
            SamplingError: samples failed twice.
        """
        question, held = pending
        messages, missing = self.prompt.messages(question.input), self.samples - held
        concurrency = missing if prepare_model(self.model).sampler else _CONCURRENCY
        # Were i to start at 0 for each question, all first responses would share one
        # stream of random numbers: one style of answering, not a fair sample.
        block = zlib.crc32(question.id.encode("utf-8", "surrogatepass")) % _SEED_BLOCKS
        drawn = draw_samples(
            self.model,
            messages,
            missing,
            first=block * _SEEDS + held,
            concurrency=concurrency,
        )
        failed = [one for one in drawn if not _is_whole(one)]
        if len(failed) < len(drawn):  # else the model fails altogether
            drawn = [
                one
                if _is_whole(one)
                else draw_samples(self.model, messages, 1, first=one.index)[0]
                for one in drawn
            ]
        if not all(map(_is_whole, drawn)):
            return _overflow_of(question, drawn)
        extract = extractor(self.answer)
        asked = question_text(messages)
        responses = [
            _read(one, one.message, extract, asked)
            for one in drawn
            if one.message is not None
        ]
        return DrawnQuestion(question, responses, *_failures(drawn, failed))


def sample_questions(
    pending: Iterable[PendingQuestion],
    sample: Callable[[PendingQuestion], DrawnQuestion | ContextOverflowError],
    concurrency: int,
) -> Iterator[tuple[PendingQuestion, DrawnQuestion | ContextOverflowError]]:
    """Yield questions with their responses, as they are complete; after a failure,
    those in flight still come.
    """
    if concurrency == 1:  # in this thread, where Ctrl-C reaches it
        yield from ((one, sample(one)) for one in pending)
        return
    threads = DaemonExecutor(concurrency, "reasc-record")
    waiting, running = (
        iter(pending),
        dict[Future[DrawnQuestion | ContextOverflowError], PendingQuestion](),
    )
    try:
        while True:
            running |= {
                threads.submit(sample, one): one
                for one in islice(waiting, concurrency - len(running))
            }
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


def stored_message(message: AIMessage) -> tuple[str | None, Message]:
    """Return why a message ended, and what a pool keeps of it: all that its vote
    depends on, and its usage.
    """
    metadata = message.response_metadata
    endings = {
        name: metadata[name] for name in _ENDINGS if metadata.get(name) is not None
    }
    reason = next(iter(endings.values()), None)
    beside = {
        "content": None if isinstance(message.content, str) else message.content,
        "tool_calls": message.tool_calls,
        "invalid_tool_calls": message.invalid_tool_calls,
        "additional_kwargs": {"refusal": refusal}
        if (refusal := message.additional_kwargs.get("refusal"))
        else None,
        "response_metadata": endings if endings.keys() - {"finish_reason"} else None,
    }
    # Some integrations put there what JSON cannot hold, such as an enumeration's
    # member.
    plain = json.loads(
        json.dumps(
            {name: value for name, value in beside.items() if value}, default=_plain
        )
    )
    usage = None if message.usage_metadata is None else dict(message.usage_metadata)
    kept = Message(str(message.text), plain or None, usage, token_lengths(message))
    return None if reason is None else str(_plain(reason)), kept


def is_overflow(error: BaseException) -> bool:
    """Return whether a model refused a prompt because of its length, so that it would
    refuse it again.
    """
    seen: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in seen:
        seen.append(following)
        if isinstance(following, CoreContextOverflowError):  # LangChain's, and so ours
            return True
        # None in the middle of a stream
        status = getattr(following, "status_code", None)
        if status == 413 or (
            status in (None, 400, 422) and _OVERFLOW.search(str(following))
        ):
            return True
        following = following.__cause__ or following.__context__
    return False


def _read(
    sample: SampledResponse, message: AIMessage, extract: Extractor, question: str
) -> DrawnResponse:
    vote, usage = vote_of(message, extract, question=question), reported_usage(message)
    reason, kept = stored_message(message)
    response = PoolResponse(
        answer=vote.answer,
        completion_tokens=output_tokens(message),
        prompt_tokens=usage["input_tokens"] if usage else None,
        finish_reason=reason,
        cut_off=vote.cut_off,
        seconds=sample.seconds,
    )
    try:
        # For a vote for tool calls the calls' own tokens, where they are known, as a
        # live decision would weigh it.
        places = places_of(message, extract, vote, question=question)
        reading = read_signals(message, of_calls=vote.calls, places=places)
    except LogprobsUnavailable:
        reading = None
    info = message.response_metadata.get(TOKEN_SIGNALS_INFO)
    info = dict(info) if isinstance(info, Mapping) else None
    return DrawnResponse(response, kept, reading, info, is_estimated(message))


def _overflow_of(
    question: LabelledQuestion, drawn: Sequence[SampledResponse]
) -> ContextOverflowError:
    """Return the error of a question that does not fit the model's context.

    Raises:
        SamplingError: samples failed for another reason.
    """
    errors = [one.error for one in drawn if one.error is not None]
    if len(errors) == len(drawn) and all(map(is_overflow, errors)):
        return ContextOverflowError(str(errors[0]))
    raise SamplingError(
        f"{len(errors)} of {len(drawn)} samples of question {question.id!r} failed, "
        f"the first with {errors[0]!r}; what was complete before is kept: run the "
        "same command again to go on",
        errors,
    )


def _failures(
    drawn: Sequence[SampledResponse], failed: Sequence[SampledResponse]
) -> tuple[int, int]:
    """Count failed samples and the failed requests behind complete ones, and the tokens
    that had come of both.
    """
    messages = [one.message for one in (*drawn, *failed) if one.message is not None]
    retried = [
        attempt
        for message in messages
        for attempt in message.response_metadata.get(FAILED_ATTEMPTS, ())
    ]
    tokens = sum(int(attempt.get(RECEIVED_TOKENS, 0)) for attempt in retried)
    # What does not fit the context was never begun.
    begun = [
        one
        for one in failed
        if one.message or one.error is None or not is_overflow(one.error)
    ]
    return len(begun) + len(retried), tokens + sum(
        output_tokens(one.message) for one in failed
    )


def _is_whole(sample: SampledResponse) -> bool:
    return sample.status == "complete" and sample.message is not None


def _plain(value: Any) -> Any:
    return getattr(value, "value", value if isinstance(value, str) else str(value))
