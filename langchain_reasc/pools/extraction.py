"""What a pool keeps of a response, so that its vote can be read again when the rules for finding answers change."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from langchain_core.messages import AIMessage

from langchain_reasc.answers import EXTRACTION_VERSION, TOO_SLOW, Extractor, Vote, extractor, vote_of
from langchain_reasc.exceptions import ConfigurationError, PoolError
from langchain_reasc.method.confidence import SPAN_SCORES
from langchain_reasc.models.logprobs import token_lengths
from langchain_reasc.pools.pool import Pool, PoolQuestion
from langchain_reasc.pools.store import StoredMessage

__all__ = ["NO_SPANS", "extracted_again", "kept_of", "message_of", "votes_again"]

NO_SPANS: Final = dict.fromkeys(SPAN_SCORES)
"""For a response whose answer is looked for again: how long its tokens are was not kept, so where it is was lost."""

_TOO_SLOW: Final = 3  # responses to one question
# How responses end, in the words of OpenAI, Anthropic, Ollama, Bedrock, Gemini, OpenRouter and OpenAI's Responses API.
_ENDINGS = (
    *("finish_reason", "stop_reason", "done_reason", "stopReason", "finishReason", "native_finish_reason", "status"),
    "incomplete_details",
)


def kept_of(message: AIMessage) -> tuple[str | None, StoredMessage]:
    """Why a message ended, and what is written of it beside its counts: all that its vote depends on, and no more."""
    metadata = message.response_metadata
    endings = {name: metadata[name] for name in _ENDINGS if metadata.get(name) is not None}
    reason = next(iter(endings.values()), None)
    beside = {
        "content": None if isinstance(message.content, str) else message.content,
        "tool_calls": message.tool_calls,
        "invalid_tool_calls": message.invalid_tool_calls,
        "additional_kwargs": {"refusal": refusal} if (refusal := message.additional_kwargs.get("refusal")) else None,
        "response_metadata": endings if endings.keys() - {"finish_reason"} else None,
    }
    # Some integrations put what is no JSON there, such as an enumeration's member.
    plain = json.loads(json.dumps({name: value for name, value in beside.items() if value}, default=_plain))
    ended = None if reason is None else str(_plain(reason))
    usage = None if message.usage_metadata is None else dict(message.usage_metadata)
    return ended, StoredMessage(str(message.text), plain or None, usage, token_lengths(message))


def message_of(stored: StoredMessage, finish_reason: str | None) -> AIMessage | None:
    """The message that :func:`kept_of` was given, as far as its vote depends on it; None where no text was kept."""
    if stored.text is None:
        return None
    reason = {"finish_reason": finish_reason} if finish_reason else {}
    beside = stored.beside if isinstance(stored.beside, dict) else {}  # others may mean something else by it
    return AIMessage(**{"content": stored.text, "response_metadata": reason, **beside})


def _plain(value: Any) -> Any:
    return getattr(value, "value", value if isinstance(value, str) else str(value))


def votes_again(pool: Pool, question: PoolQuestion, extract: Extractor) -> list[Vote]:
    """The votes of a question's responses, read off what the pool keeps of them.

    Raises:
        PoolError: it keeps no text of a response, or to find its answers takes too long.
    """
    each = zip(pool.messages(question.id), question.responses, strict=True)
    messages = [message_of(stored, response.finish_reason) for stored, response in each]
    if None in messages:
        raise PoolError(
            f"question {question.id!r} has a response without its text, so its answer cannot be looked for again"
        )
    votes, slow = list[Vote](), 0
    for message in filter(None, messages):
        votes.append(vote_of(message, extract))
        slow += votes[-1].why_none == TOO_SLOW
        if slow == _TOO_SLOW:  # of a whole pool it might take days
            raise PoolError(f"{extract.name} takes too long over {slow} responses to question {question.id!r}")
    return votes


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
        questions = tuple(_with(question, votes_again(pool, question, extract)) for question in pool.questions)
    except (PoolError, ConfigurationError) as error:
        raise PoolError(f"{which}; {error}. Record it anew") from None
    changed = sum(_differing(pool.questions, questions))
    note = f"{which}: they were looked for again in the stored text, and {changed} changed"
    return replace(pool, questions=questions, notes=(*pool.notes, note))


def _with(question: PoolQuestion, votes: list[Vote]) -> PoolQuestion:
    responses = (
        replace(response, answer=vote.answer, cut_off=vote.cut_off, correct=None, answer_span=None, last_step=None)
        for response, vote in zip(question.responses, votes, strict=True)
    )
    return replace(question, responses=tuple(responses))


def _differing(before: tuple[PoolQuestion, ...], after: tuple[PoolQuestion, ...]) -> Iterator[int]:
    for one, other in zip(before, after, strict=True):
        yield sum(a.answer != b.answer for a, b in zip(one.responses, other.responses, strict=True))
