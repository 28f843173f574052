"""What a pool keeps of a response, so that its vote can be read again when the rules for finding answers change."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from langchain_core.messages import AIMessage

from langchain_reasc.answers import EXTRACTION_VERSION, Extractor, Vote, extractor, vote_of
from langchain_reasc.evaluation.pool import Pool, PoolQuestion, PoolResponse
from langchain_reasc.exceptions import ConfigurationError, PoolError

__all__ = ["extracted_again", "kept_of", "message_of", "votes_again"]

_FINISH_REASONS = ("finish_reason", "stop_reason", "done_reason")  # OpenAI's name, Anthropic's, Ollama's


def kept_of(message: AIMessage) -> dict[str, Any]:
    """What is written of a message beside its counts: all that its vote depends on, and no more."""
    refusal = message.additional_kwargs.get("refusal") or _refusal_block(message)
    held = {"tool_calls": message.tool_calls, "invalid_tool_calls": message.invalid_tool_calls, "refusal": refusal}
    metadata = message.response_metadata
    return {
        "text": str(message.text),
        "finish_reason": next((metadata[name] for name in _FINISH_REASONS if metadata.get(name)), None),
        **{name: value for name, value in held.items() if value},
    }


def message_of(response: PoolResponse) -> AIMessage | None:
    """The message that :func:`kept_of` was given, as far as its vote depends on it; None where no text was kept."""
    if response.text is None:
        return None
    refusal = {"refusal": response.refusal} if response.refusal else {}
    return AIMessage(
        [response.text, {"type": "refusal", **refusal}] if refusal else response.text,
        tool_calls=response.tool_calls or [],
        invalid_tool_calls=response.invalid_tool_calls or [],
        additional_kwargs=refusal,
        response_metadata={"finish_reason": response.finish_reason} if response.finish_reason else {},
    )


def votes_again(question: PoolQuestion, extract: Extractor) -> list[Vote]:
    """The votes of a question's responses, read off what the pool keeps of them.

    Raises:
        PoolError: it keeps no text of a response.
    """
    messages = [message_of(response) for response in question.responses]
    if None in messages:
        raise PoolError(
            f"question {question.id!r} has a response without its text, so its answer cannot be looked for again"
        )
    return [vote_of(message, extract) for message in messages if message is not None]


def extracted_again(pool: Pool) -> Pool:
    """The pool with the answers that this version of the rules finds, where it names another version.

    One that names none keeps its answers: nobody knows how they were found.

    Raises:
        PoolError: they cannot be looked for again, because a function found them or their text was not kept.
    """
    version, spec = pool.metadata.get("extraction_version"), pool.metadata.get("answer")
    if version in (None, EXTRACTION_VERSION):
        return pool
    which = f"{pool.path}: its answers were found by version {version} of the extraction rules, here is version "
    which += str(EXTRACTION_VERSION)
    if not isinstance(spec, str):
        raise PoolError(f"{which}, and no extractor is named in its metadata that could be asked again; record it anew")
    try:
        extract = extractor(spec)
        questions = tuple(_with(question, votes_again(question, extract)) for question in pool.questions)
    except (PoolError, ConfigurationError) as error:
        raise PoolError(f"{which}; {error}. Record it anew") from None
    changed = sum(_differing(pool.questions, questions))
    note = f"{which}: they were looked for again in the stored text, and {changed} changed"
    return replace(pool, questions=questions, notes=(*pool.notes, note))


def _with(question: PoolQuestion, votes: list[Vote]) -> PoolQuestion:
    responses = (
        response.model_copy(update={"answer": vote.answer, "cut_off": vote.cut_off, "correct": None})
        for response, vote in zip(question.responses, votes, strict=True)
    )
    return question.model_copy(update={"responses": tuple(responses)})


def _differing(before: tuple[PoolQuestion, ...], after: tuple[PoolQuestion, ...]) -> Iterator[int]:
    for one, other in zip(before, after, strict=True):
        yield sum(a.answer != b.answer for a, b in zip(one.responses, other.responses, strict=True))


def _refusal_block(message: AIMessage) -> str | None:
    blocks = message.content if isinstance(message.content, list) else []
    said = [block.get("refusal") for block in blocks if isinstance(block, dict) and block.get("type") == "refusal"]
    return "\n".join(map(str, said)) or None
