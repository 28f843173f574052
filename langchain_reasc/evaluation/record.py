"""Recording a pool: n responses to each question, resumable after a kill."""

import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import Runnable

from langchain_reasc._version import __version__
from langchain_reasc.answers import extractor, vote_of
from langchain_reasc.evaluation.pool import Pool, read_pool
from langchain_reasc.evaluation.questions import LabelledQuestion
from langchain_reasc.evaluation.resume import resume
from langchain_reasc.evaluation.signals_file import TokenSignals
from langchain_reasc.exceptions import ConfidenceError, ConfigurationError, LogprobsUnavailable, SamplingError
from langchain_reasc.method.confidence import Measure
from langchain_reasc.models.prepared import PreparedModel
from langchain_reasc.models.usage import output_tokens
from langchain_reasc.sampling import Sample, draw

__all__ = ["record_pool"]

_SEED_BLOCKS = 1_000_003
_CONCURRENCY = 8  # requests at once to a model that does not sample in parallel itself


def record_pool(
    model: Runnable[LanguageModelInput, Any],
    questions: Sequence[LabelledQuestion],
    path: str | os.PathLike[str],
    *,
    samples: int = 16,
    answer: str = "auto",
    system: str | None = None,
    measure: Measure | None = None,
    concurrency: int = 1,
    on_question: Callable[[int, int], None] | None = None,
) -> Pool:
    """Record responses to each question, adding to what the pool already holds.

    After each question its token signals are on disk, then its line in the pool: a kill loses at most the questions in
    flight, and the same call goes on from there. A sample that failed is drawn once more.

    Args:
        model: a chat model; a local one is asked for all samples of a question at once.
        questions: with their reference answers.
        path: the pool; its signals lie beside it.
        samples: responses per question.
        answer: where the answer is in a response, see :func:`langchain_reasc.answers.extractor`.
        system: a system message in front of each question.
        measure: makes the recorded ``score``; None for the paper's.
        concurrency: questions in flight at once. Several use a server better. The pool then has them in the order they
            were done, and a model in this process gives the same responses to the last bit only one after the other.
        on_question: called with (questions complete, questions) at the start and after each.

    Returns:
        The whole pool, questions of earlier calls included.

    Raises:
        PoolError: the pool there was recorded from another model, prompt, number of samples, or other questions.
        SamplingError: the model failed; what was complete is kept, and so is what was in flight beside it.
        ConfigurationError: ``concurrency`` is below 1.
    """
    target, measure = Path(path), measure or Measure()
    source = PreparedModel.of(model, logprobs=True)
    metadata = _metadata(source, samples=samples, answer=answer, system=system, measure=measure)
    target.parent.mkdir(parents=True, exist_ok=True)
    done, kept = resume(target, metadata, questions)
    missing = [question for question in questions if question.id not in done]
    extract = extractor(answer)
    if on_question:
        on_question(len(questions) - len(missing), len(questions))

    def draw_one(question: LabelledQuestion) -> list[AIMessage]:
        return _drawn(model, _messages(question.input, system), samples, question.id)

    each = enumerate(_each(missing, draw_one, concurrency), start=len(questions) - len(missing) + 1)
    for at, (question, drawn) in each:
        signals = kept.of(drawn)
        kept.append(question.id, signals, earlier=done)
        responses = [
            _response(message, vote_of(message, extract).answer, _score(measure, held))
            for message, held in zip(drawn, signals, strict=True)
        ]
        line = {"id": question.id, "input": question.input, "reference": question.reference, "responses": responses}
        _append(target, {"metadata": metadata | {"signals_info": kept.info}}, line)
        done.append(question.id)
        if on_question:
            on_question(at, len(questions))
    return read_pool(target)


def _each(
    questions: Sequence[LabelledQuestion], draw_one: Callable[[LabelledQuestion], list[AIMessage]], concurrency: int
) -> Iterator[tuple[LabelledQuestion, list[AIMessage]]]:
    """Questions with their responses, as they are done; after a failure those in flight still come out."""
    if concurrency == 1:  # in this thread, where Ctrl-C reaches it
        yield from ((question, draw_one(question)) for question in questions)
        return
    if concurrency < 1:
        raise ConfigurationError(f"concurrency must be 1 or more, got {concurrency}")
    threads = ThreadPoolExecutor(concurrency, "reasc-record")
    drawing = {threads.submit(draw_one, question): question for question in questions}
    out: set[Future[list[AIMessage]]] = set()
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


def _messages(value: str, system: str | None) -> list[BaseMessage]:
    return [*([SystemMessage(system)] if system else []), HumanMessage(value)]


def _metadata(
    source: PreparedModel, *, samples: int, answer: str, system: str | None, measure: Measure
) -> dict[str, Any]:
    fixed = _messages("{question}", system)
    fingerprint = source.fingerprint(_messages("", system), prompt=fixed)
    return {
        "library_version": __version__,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "fingerprint": fingerprint.model_dump(mode="json", exclude_none=True),
        "samples": samples,
        "seed": getattr(source.model, "seed", None),
        "answer": answer,
        "system": system,
        "measure": {"signal": measure.signal, "score": measure.score, "window": measure.window},
    }


def _append(target: Path, metadata: Mapping[str, Any], line: Mapping[str, Any]) -> None:
    with target.open("a", encoding="utf-8") as file:
        for record in (metadata, line) if file.tell() == 0 else (line,):
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _drawn(
    model: Runnable[LanguageModelInput, Any], messages: list[BaseMessage], samples: int, question: str
) -> list[AIMessage]:
    concurrency = samples if PreparedModel.of(model).sampler else _CONCURRENCY
    # Sample i is drawn with seed + i. Were i to start at 0 for each question, all first responses would share one
    # stream of random numbers: one style of answering, not a fair sample.
    first = zlib.crc32(question.encode()) % _SEED_BLOCKS * samples
    drawn = draw(model, messages, samples, first=first, concurrency=concurrency)
    if any(map(_is_whole, drawn)):  # else the model fails altogether
        drawn = [sample if _is_whole(sample) else draw(model, messages, 1, first=sample.index)[0] for sample in drawn]
    complete = [sample.message for sample in drawn if _is_whole(sample) and sample.message is not None]
    if len(complete) < samples:
        raise _failure(drawn, question)
    return complete


def _is_whole(sample: Sample) -> bool:
    return sample.status == "complete" and sample.message is not None


def _failure(drawn: Sequence[Sample], question: str) -> Exception:
    errors = [sample.error for sample in drawn if sample.error is not None]
    return SamplingError(
        f"{len(errors)} of {len(drawn)} samples of question {question!r} failed, the first with {errors[0]!r}; what "
        "was complete before is kept: run the same command again to go on",
        errors,
    )


def _score(measure: Measure, signals: TokenSignals) -> float | None:
    try:
        return measure(signals)
    except (LogprobsUnavailable, ConfidenceError):
        return None


def _response(message: AIMessage, answer: str | None, score: float | None) -> dict[str, Any]:
    usage = message.usage_metadata
    return {
        "text": str(message.text),
        "answer": answer,
        "score": score,
        "prompt_tokens": usage["input_tokens"] if usage else None,
        "completion_tokens": output_tokens(message),
        "finish_reason": message.response_metadata.get("finish_reason"),
    }
