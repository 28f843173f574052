"""Drawing the samples that a pool records: question by question, several in flight, a failed one once more."""

import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Any

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import Runnable

from langchain_reasc.pools.overflow import is_overflow
from langchain_reasc.data.questions import LabelledQuestion
from langchain_reasc.exceptions import ConfigurationError, ContextOverflowError, SamplingError
from langchain_reasc.models.prepared import PreparedModel
from langchain_reasc.sampling import Sample, draw

__all__ = ["Drawn", "OnSamples", "drawn_responses", "each_question"]

_SEED_BLOCKS = 1_000_003
_CONCURRENCY = 8  # requests at once to a model that does not sample in parallel itself

Drawn = list[AIMessage] | ContextOverflowError
"""The responses to a question, or why it has none and never will."""

OnSamples = Callable[[str, Sequence[Sample]], None]
"""Called with a question's id and samples of it that have ended, failed ones too, from the thread that drew them."""


def each_question(
    questions: Sequence[LabelledQuestion], draw_one: Callable[[LabelledQuestion], Drawn], concurrency: int
) -> Iterator[tuple[LabelledQuestion, Drawn]]:
    """Questions with their responses, as they are done; after a failure those in flight still come out."""
    if concurrency == 1:  # in this thread, where Ctrl-C reaches it
        yield from ((question, draw_one(question)) for question in questions)
        return
    if concurrency < 1:
        raise ConfigurationError(f"concurrency must be 1 or more, got {concurrency}")
    threads = ThreadPoolExecutor(concurrency, "reasc-record")
    drawing = {threads.submit(draw_one, question): question for question in questions}
    out: set[Future[Drawn]] = set()
    try:
        for done in as_completed(drawing):
            out.add(done)
            yield drawing[done], done.result()
    except Exception:
        threads.shutdown(cancel_futures=True)
        for other in drawing.keys() - out:
            if not other.cancelled() and other.exception() is None:
                yield drawing[other], other.result()
        raise
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def drawn_responses(
    model: Runnable[LanguageModelInput, Any],
    messages: list[BaseMessage],
    samples: int,
    question: str,
    on_samples: OnSamples | None = None,
) -> Drawn:
    """All samples of a question, which is named by its id.

    Raises:
        SamplingError: some could not be had, even when they were drawn once more.
    """
    concurrency = samples if PreparedModel.of(model).sampler else _CONCURRENCY
    # Sample i is drawn with seed + i. Were i to start at 0 for each question, all first responses would share one
    # stream of random numbers: one style of answering, not a fair sample.
    first = zlib.crc32(question.encode("utf-8", "surrogatepass")) % _SEED_BLOCKS * samples

    def begun(n: int, first: int) -> list[Sample]:
        ended = draw(model, messages, n, first=first, concurrency=concurrency)
        if on_samples:
            on_samples(question, ended)
        return ended

    drawn = begun(samples, first)
    if any(map(_is_whole, drawn)):  # else the model fails altogether
        drawn = [sample if _is_whole(sample) else begun(1, sample.index)[0] for sample in drawn]
    complete = [sample.message for sample in drawn if _is_whole(sample) and sample.message is not None]
    if len(complete) == samples:
        return complete
    errors = [sample.error for sample in drawn if sample.error is not None]
    if not complete and errors and all(map(is_overflow, errors)):
        return ContextOverflowError(str(errors[0]))
    raise SamplingError(
        f"{len(errors)} of {len(drawn)} samples of question {question!r} failed, the first with {errors[0]!r}; what "
        "was complete before is kept: run the same command again to go on",
        errors,
    )


def _is_whole(sample: Sample) -> bool:
    return sample.status == "complete" and sample.message is not None
