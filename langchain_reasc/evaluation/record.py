"""Recording a pool: n responses to each question, resumable after a kill."""

import json
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import Runnable

from langchain_reasc._version import __version__
from langchain_reasc.answers import extractor
from langchain_reasc.confidence import Measure
from langchain_reasc.evaluation.kept_signals import KeptSignals
from langchain_reasc.evaluation.pool import Pool, read_pool
from langchain_reasc.evaluation.questions import LabelledQuestion
from langchain_reasc.evaluation.signals_file import (
    TokenSignals,
    intact_length,
    load_signals,
    signals_path,
)
from langchain_reasc.exceptions import ConfidenceError, LogprobsUnavailable, PoolError, SamplingError
from langchain_reasc.result import output_tokens
from langchain_reasc.sampling import Sample, draw
from langchain_reasc.source import Source

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
    on_question: Callable[[int, int], None] | None = None,
) -> Pool:
    """Record responses to each question, adding to what the pool already holds.

    After each question its token signals are on disk, then its line in the pool: a kill loses at most the question in
    flight, and the same call goes on from there.

    Args:
        model: a chat model; a local one is asked for all samples of a question at once.
        questions: with their reference answers.
        path: the pool; its signals lie beside it.
        samples: responses per question.
        answer: where the answer is in a response, see :func:`langchain_reasc.answers.extractor`.
        system: a system message in front of each question.
        measure: makes the recorded ``score``; None for the paper's.
        on_question: called with (questions complete, questions) at the start and after each.

    Returns:
        The whole pool, questions of earlier calls included.

    Raises:
        PoolError: the pool there was recorded from another model, prompt, number of samples, or other questions.
        SamplingError: the model failed; what was complete is kept.
    """
    target, measure = Path(path), measure or Measure()
    source = Source.of(model, logprobs=True)
    metadata = _metadata(source, samples=samples, answer=answer, system=system, measure=measure)
    target.parent.mkdir(parents=True, exist_ok=True)
    done, kept = _resume(target, metadata, questions)
    missing = [question for question in questions if question.id not in done]
    extract = extractor(answer)
    if on_question:
        on_question(len(questions) - len(missing), len(questions))
    for at, question in enumerate(missing, start=len(questions) - len(missing) + 1):
        drawn = _drawn(model, _messages(question.input, system), samples, question.id)
        signals = kept.of(drawn)
        kept.append(question.id, signals, earlier=done)
        responses = [
            _response(message, extract(str(message.text)), _score(measure, held))
            for message, held in zip(drawn, signals, strict=True)
        ]
        line = {"id": question.id, "input": question.input, "reference": question.reference, "responses": responses}
        _append(target, {"metadata": metadata | {"signals_info": kept.info}}, line)
        done.append(question.id)
        if on_question:
            on_question(at, len(questions))
    return read_pool(target)


def _messages(value: str, system: str | None) -> list[BaseMessage]:
    return [*([SystemMessage(system)] if system else []), HumanMessage(value)]


def _metadata(source: Source, *, samples: int, answer: str, system: str | None, measure: Measure) -> dict[str, Any]:
    return {
        "library_version": __version__,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "fingerprint": source.fingerprint(_messages("", system)).model_dump(mode="json", exclude_none=True),
        "samples": samples,
        "seed": getattr(source.model, "seed", None),
        "answer": answer,
        "system": system,
        "measure": {"signal": measure.signal, "score": measure.score, "window": measure.window},
    }


def _resume(
    target: Path, metadata: Mapping[str, Any], questions: Sequence[LabelledQuestion]
) -> tuple[list[str], KeptSignals]:
    """The ids that are complete, after cutting off what a kill left unfinished, and the signals that go with theirs."""
    if not target.exists() or _is_torn_start(target.read_bytes()):
        target.write_bytes(b"")
        _cut_signals(target)
        return [], KeptSignals(target)
    pool = read_pool(target)
    then, now = _settings(pool.metadata), _settings(metadata)
    for name in now:
        if then.get(name) != now[name]:
            raise PoolError(
                f"{target} was recorded with {name} {then.get(name)!r}, now it is {now[name]!r}; record into another "
                "file, or delete this one"
            )
    asked = {question.id: question.input for question in questions}
    for held in pool.questions:
        if asked.get(held.id, held.input) != held.input:
            raise PoolError(
                f"{target} holds another question with id {held.id!r} ({held.input!r:.60}); record into another file"
            )
    _cut_line(target)
    _cut_signals(target)
    last = pool.questions[-1].id
    if pool.signals_files and last not in load_signals(pool.signals_files[0]).records:
        _cut_line(target, last=True)  # its signals were lost: record it again
        pool = replace(pool, questions=pool.questions[:-1])
    info = pool.metadata.get("signals_info")
    kept = KeptSignals(target, info if isinstance(info, dict) else None)
    return [question.id for question in pool.questions], kept


def _settings(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What two recordings must have in common to be one pool."""
    own = {name: metadata.get(name) for name in ("samples", "seed", "answer", "system")}
    fingerprint = metadata.get("fingerprint")
    return (fingerprint if isinstance(fingerprint, dict) else {"fingerprint": fingerprint}) | own


def _is_torn_start(data: bytes) -> bool:
    """Whether the recorder was killed before its first question was whole."""
    return not data.strip() or (data.count(b"\n") < 2 and b'{"metadata"'.startswith(data[:11]))


def _cut_line(target: Path, *, last: bool = False) -> None:
    """Cut a line that is not whole, or the last whole one."""
    data = target.read_bytes()
    whole = data.rfind(b"\n") + 1
    if last:
        os.truncate(target, data.rfind(b"\n", 0, whole - 1) + 1)
    elif data[whole:] and _is_json(data[whole:]):  # all there but its newline
        target.write_bytes(data + b"\n")
    else:
        os.truncate(target, whole)


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


def _cut_signals(target: Path) -> None:
    signals = signals_path(target)
    if signals.exists() and (intact := intact_length(signals)) < signals.stat().st_size:
        os.truncate(signals, intact)


def _append(target: Path, metadata: Mapping[str, Any], line: Mapping[str, Any]) -> None:
    with target.open("a", encoding="utf-8") as file:
        for record in (metadata, line) if file.tell() == 0 else (line,):
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _drawn(
    model: Runnable[LanguageModelInput, Any], messages: list[BaseMessage], samples: int, question: str
) -> list[AIMessage]:
    concurrency = samples if Source.of(model).sampler else _CONCURRENCY
    # Sample i is drawn with seed + i. Were i to start at 0 for each question, all first responses would share one
    # stream of random numbers: one style of answering, not a fair sample.
    first = zlib.crc32(question.encode()) % _SEED_BLOCKS * samples
    drawn = draw(model, messages, samples, first=first, concurrency=concurrency)
    complete = [sample.message for sample in drawn if sample.status == "complete" and sample.message is not None]
    if len(complete) < samples:
        raise _failure(drawn, question)
    return complete


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
        "completion_tokens": output_tokens(message)[0],
        "finish_reason": message.response_metadata.get("finish_reason"),
    }
