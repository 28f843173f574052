"""Recording a pool: n responses to each question, resumable after a kill."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable

from langchain_reasc._version import __version__
from langchain_reasc.answers import EXTRACTION_VERSION, AnswerSpec, Vote, extractor, vote_of
from langchain_reasc.pools.drawing import Drawn, OnSamples, drawn_responses, each_question
from langchain_reasc.pools.extraction import kept_of
from langchain_reasc.pools.pool import Pool
from langchain_reasc.data.questions import LabelledQuestion
from langchain_reasc.pools.reading import read_pool
from langchain_reasc.pools.resume import resume
from langchain_reasc.data.template import Template
from langchain_reasc.exceptions import ConfidenceError, ConfigurationError, ContextOverflowError, LogprobsUnavailable
from langchain_reasc.method.confidence import Measure
from langchain_reasc.models.logprobs import SignalReading
from langchain_reasc.models.prepared import PreparedModel
from langchain_reasc.models.usage import output_tokens

__all__ = ["record_pool"]


def record_pool(
    model: Runnable[LanguageModelInput, Any],
    questions: Sequence[LabelledQuestion],
    path: str | os.PathLike[str],
    *,
    samples: int = 16,
    answer: AnswerSpec = "auto",
    system: str | None = None,
    template: Template | None = None,
    measure: Measure | None = None,
    concurrency: int = 1,
    on_question: Callable[[int, int], None] | None = None,
    on_samples: OnSamples | None = None,
    on_notice: Callable[[str], None] | None = None,
) -> Pool:
    """Record responses to each question, adding to what the pool already holds.

    After each question its token signals are on disk, then its line in the pool: a kill loses at most the questions in
    flight, and the same call goes on from there. A sample that failed is drawn once more. What the pool holds is graded
    again where labels have changed, and its answers are found again where ``answer`` or the rules behind it have.

    Args:
        model: a chat model; a local one is asked for all samples of a question at once.
        questions: those to ask, with reference answers. One that does not fit the model's context is left out, with a
            notice.
        path: the pool; its signals lie beside it.
        samples: responses per question.
        answer: where the answer is in a response, see :func:`langchain_reasc.answers.extractor`. It is asked a few
            times of each, see :func:`langchain_reasc.answers.places_of`.
        system: a system message in front of each question.
        template: what else stands around each question, such as worked examples.
        measure: makes the recorded ``score``; None for the paper's.
        concurrency: questions in flight at once. Several use a server better. The pool then has them in the order they
            were done, and a model in this process gives the same responses to the last bit only one after the other.
        on_question: called with (questions complete, questions) at the start and after each.
        on_samples: called with a question's id and its samples as they end, failed ones too, from several threads.
        on_notice: called with what the user should know: labels that changed, questions that were left out, responses
            without an answer.

    Returns:
        The whole pool, questions of earlier calls included.

    Raises:
        PoolError: the pool there was recorded from another model, prompt, number of samples, or other questions.
        SamplingError: the model failed; what was complete is kept, and so is what was in flight beside it.
        ContextOverflowError: no question fits the model's context.
        ConfigurationError: ``concurrency`` is below 1, template and system message do not go together, or ``answer`` is
            free text, of which a pool cannot tell what means the same.
    """
    target, measure, tell = Path(path), measure or Measure(), on_notice or (lambda notice: None)
    prompt, extract = (template or Template()).after(system), extractor(answer)
    if extract.equivalence:
        raise ConfigurationError(
            f"a pool's answers are compared by their spelling, and {extract.name} tells what means the same: calibrate "
            "with langchain_reasc.calibrate(), which takes it"
        )
    source = PreparedModel.of(model, logprobs=True)
    metadata = {
        **_provenance(source, prompt),
        "samples": samples,
        "answer": answer if isinstance(answer, str) else {"function": extract.name},
        "system": system,
        "template": [list(turn) for turn in template.fixed] if template else None,
        "measure": {"signal": measure.signal, "score": measure.score, "window": measure.window},
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    done, kept = resume(target, metadata, questions, tell=tell)
    missing = [question for question in questions if question.id not in done]
    if on_question:
        on_question(len(questions) - len(missing), len(questions))

    def draw_one(question: LabelledQuestion) -> Drawn:
        return drawn_responses(model, prompt.messages(question.input), samples, question.id, on_samples)

    too_long: list[ContextOverflowError] = []
    each = enumerate(each_question(missing, draw_one, concurrency), start=len(questions) - len(missing) + 1)
    for at, (question, drawn) in each:
        if isinstance(drawn, ContextOverflowError):
            too_long.append(drawn)
            tell(f"question {question.id!r} ({question.input[:50]!r}...) is too long and was left out: {drawn}")
        else:
            votes = [vote_of(message, extract) for message in drawn]
            readings = kept.of(drawn, votes, extract)
            kept.append(question.id, [one.signals for one in readings], earlier=done)
            responses = [
                _response(message, vote, reading, _score(measure, reading))
                for message, vote, reading in zip(drawn, votes, readings, strict=True)
            ]
            line = {"id": question.id, "input": question.input, "reference": question.reference, "responses": responses}
            _append(target, {"metadata": metadata | {"signals_info": kept.info}}, line)
            done.append(question.id)
        if on_question:
            on_question(at, len(questions))
    if too_long and not done:
        raise ContextOverflowError(f"none of the {len(questions)} questions fits the model's context: {too_long[0]}")
    pool = read_pool(target)
    for notice in _told(pool, {question.id for question in questions}, left_out=len(too_long)):
        tell(notice)
    return pool


def _provenance(source: PreparedModel, prompt: Template) -> dict[str, Any]:
    """What a pool's responses came from, and when."""
    fingerprint = source.fingerprint(prompt.messages(""), prompt=prompt.fixed)
    return {
        "library_version": __version__,
        "extraction_version": EXTRACTION_VERSION,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "fingerprint": fingerprint.model_dump(mode="json", exclude_none=True),
        "seed": getattr(source.model, "seed", None),
    }


def _told(pool: Pool, asked: set[str], *, left_out: int) -> Iterator[str]:
    """What a user should know of the responses to the questions that were asked."""
    if left_out:
        yield f"{left_out} of {len(asked)} questions do not fit the model's context and were left out"
    responses = [response for question in pool.questions if question.id in asked for response in question.responses]
    without = [response for response in responses if response.answer is None]
    if without:
        cut_off = sum(response.cut_off for response in without)
        yield (
            f"{len(without)} of {len(responses)} responses have no answer ({cut_off} of them were cut off); "
            "answer=... says where it is, max_tokens=... how long a response may be"
        )


def _append(target: Path, metadata: Mapping[str, Any], line: Mapping[str, Any]) -> None:
    with target.open("a", encoding="utf-8") as file:
        for record in (metadata, line) if file.tell() == 0 else (line,):
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _score(measure: Measure, reading: SignalReading) -> float | None:
    try:
        return measure(reading.signals, reading.spans)
    except (LogprobsUnavailable, ConfidenceError):
        return None


def _response(message: AIMessage, vote: Vote, reading: SignalReading, score: float | None) -> dict[str, Any]:
    usage = message.usage_metadata
    return {
        **kept_of(message),
        "answer": vote.answer,
        "cut_off": vote.cut_off,
        "score": score,
        "prompt_tokens": usage["input_tokens"] if usage else None,
        "completion_tokens": output_tokens(message),
        **{name: span for name, span in reading.spans._asdict().items() if span is not None},
    }
