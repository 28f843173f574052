"""The shapes in which providers put log-probabilities into ``response_metadata``: one small reader each.

A reader gets the metadata of a response and gives its tokens, or None where the shape is not its own. Which numbers can
be believed is not its business: see :mod:`.checks`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from langchain_reasc.exceptions import LogprobsUnavailable

__all__ = ["Reader", "Token", "register_reader", "tokens_of"]


class Token(NamedTuple):
    """A generated token as the provider describes it, nothing checked.

    Attributes:
        size: bytes of its text in UTF-8; None where the provider does not give the text.
        logprob: its log-probability, or whatever stands in that place.
        alternatives: the log-probabilities of the most likely tokens at its position, in any order, with or without
            itself.
        spelled: its text in UTF-8; None where the provider does not give it.
    """

    size: int | None
    logprob: object
    alternatives: tuple[object, ...] = ()
    spelled: bytes | None = None


Reader = Callable[[Mapping[str, Any]], Sequence[Token] | None]


def register_reader(reader: Reader) -> Reader:
    """Add a reader for a shape of your own; it is asked before the others. Usable as a decorator.

    Example:
        >>> @register_reader
        ... def from_details(metadata):
        ...     details = metadata.get("details")
        ...     return [Token(len(t["text"]), t["logprob"]) for t in details["tokens"]] if details else None
    """
    _READERS.insert(0, reader)
    return reader


def tokens_of(metadata: Mapping[str, Any]) -> Sequence[Token]:
    """The tokens of a response, by the first reader that knows the shape; empty where there are none.

    Raises:
        LogprobsUnavailable: something is there, in a shape that no reader knows.
    """
    for reader in _READERS:
        if (tokens := reader(metadata)) is not None:
            return tokens
    held = metadata.get("logprobs")
    if held is None or (isinstance(held, Mapping | list) and not held):
        return ()
    described = f"a dict of {', '.join(map(str, held))}" if isinstance(held, Mapping) else type(held).__name__
    raise LogprobsUnavailable(
        f"the response's logprobs are in a shape that no reader knows ({described:.200}); add one with "
        "langchain_reasc.models.logprobs.register_reader"
    )


def _chat(metadata: Mapping[str, Any]) -> Sequence[Token] | None:
    """OpenAI's chat API and all that copy it: ``logprobs.content``, or ``logprobs.refusal`` where the model refused.

    https://platform.openai.com/docs/api-reference/chat/object
    """
    payload = metadata.get("logprobs")
    for name in ("content", "refusal"):
        if _is_list(listed := _held(payload, name)) and listed:
            return [_entry(one) for one in listed]
    # Of a stream, an empty list is all that arrives before the first token.
    return () if isinstance(payload, Mapping) and payload.keys() <= {"content", "refusal"} else None


def _arrays(metadata: Mapping[str, Any]) -> Sequence[Token] | None:
    """The older completions API, Together's and Fireworks' chat: parallel arrays, ``top_logprobs`` a dict per token.

    https://platform.openai.com/docs/api-reference/completions/object, together-python ``types/log_probs.py``,
    https://docs.fireworks.ai/api-reference/post-chatcompletions
    """
    payload = metadata.get("logprobs")
    chosen = _held(payload, "token_logprobs")
    if not _is_list(chosen):
        return None
    texts, ranked = _held(payload, "tokens"), _held(payload, "top_logprobs")
    # Arrays of another length cannot be matched to the tokens.
    texts = texts if _is_list(texts) and len(texts) == len(chosen) else [None] * len(chosen)
    ranked = ranked if _is_list(ranked) and len(ranked) == len(chosen) else [None] * len(chosen)
    return [_token(*one) for one in zip(texts, [None] * len(chosen), chosen, ranked, strict=True)]


def _flat(metadata: Mapping[str, Any]) -> Sequence[Token] | None:
    """A list of tokens with nothing around it: ChatOllama's ``logprobs``, ChatVertexAI's ``logprobs_result``.

    ollama-python ``_types.py`` (``Logprob``); langchain-google-vertexai ``_utils.get_generation_info``
    """
    for name in ("logprobs", "logprobs_result"):
        if _is_list(listed := metadata.get(name)) and listed:
            return [_entry(one) for one in listed]
    return None


def _gemini(metadata: Mapping[str, Any]) -> Sequence[Token] | None:
    """Gemini's own: chosen candidates beside a list of candidates per position.

    https://ai.google.dev/api/generate-content#LogprobsResult
    """
    payload = metadata.get("logprobs_result") or metadata.get("logprobsResult")
    chosen = _held(payload, "chosen_candidates", "chosenCandidates")
    if not _is_list(chosen):
        return None
    ranked = _held(payload, "top_candidates", "topCandidates")
    ranked = ranked if _is_list(ranked) and len(ranked) == len(chosen) else [None] * len(chosen)
    return [
        _token(_held(one, "token"), None, _logprob(one), _held(others, "candidates"))
        for one, others in zip(chosen, ranked, strict=True)
    ]


def _average(metadata: Mapping[str, Any]) -> Sequence[Token] | None:
    """Gemini's mean alone, of which no signal per token can be made."""
    if metadata.get("avg_logprobs") is None or metadata.get("logprobs") is not None:
        return None
    raise LogprobsUnavailable(
        "the response carries only its average log-probability (avg_logprobs), and a confidence needs one per token: "
        "ask for them (ChatVertexAI: logprobs=5)"
    )


_READERS: list[Reader] = [_chat, _arrays, _flat, _gemini, _average]


def _entry(one: object) -> Token:
    return _token(_held(one, "token"), _held(one, "bytes"), _logprob(one), _held(one, "top_logprobs"))


def _token(text: Any, raw: Any, logprob: object, ranked: object) -> Token:
    spelled = _spelled(text, raw)
    size = len(raw) if _is_list(raw) and raw else None if spelled is None else len(spelled)
    return Token(size, logprob, _alternatives(ranked, text, logprob), spelled)


def _spelled(text: Any, raw: Any) -> bytes | None:
    """The bytes of a token. Its text alone stands for them where it is no part of a character."""
    if not (_is_list(raw) and raw):
        return text.encode(errors="replace") if isinstance(text, str) else None
    try:
        return bytes(raw)
    except (OverflowError, TypeError, ValueError):
        return None


def _alternatives(ranked: Any, text: object, logprob: object) -> tuple[object, ...]:
    """The logprobs of a list of entries or of a dict; the chosen token once (some servers name it, then rank it)."""
    if isinstance(ranked, Mapping):
        return tuple(ranked.values())
    entries = ranked if _is_list(ranked) else ()
    values = [_logprob(one) for one in entries]
    if type(logprob) is float and isinstance(text, str) and values.count(logprob) > 1:
        again = [at for at, one in enumerate(entries) if values[at] == logprob and _held(one, "token") == text]
        values = [value for at, value in enumerate(values) if at not in again[1:]]
    return tuple(values)


def _logprob(one: Any) -> Any:
    if type(one) is dict and (value := one.get("logprob")) is not None:  # ten thousand of these in a long response
        return value
    return _held(one, "logprob", "log_probability", "logProbability")


def _held(one: Any, *names: str) -> Any:
    """The first of these that a dict or an object (some clients give pydantic models) holds."""
    is_dict = isinstance(one, dict | Mapping)
    for name in names:
        if (value := one.get(name) if is_dict else getattr(one, name, None)) is not None:
            return value
    return None


def _is_list(value: object) -> bool:
    return isinstance(value, list) or (isinstance(value, Sequence) and not isinstance(value, str | bytes))
