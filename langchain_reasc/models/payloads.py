"""Parse and check log-probabilities, with a reader for each provider's format.

``docs/chat_models.md`` lists every shape and every check. One principle stands behind
the checks: what a server did not say is left out, withheld or refused, each with a
message; it never becomes a number.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import ConfigurationError, LogprobsUnavailable

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

FLOOR: Final = -100.0
"""e^-100 is about the least that a float32 probability can hold; lower values are
sentinels or mean "none at all".
"""
_ROUNDING: Final = 1e-3  # a value above zero by no more than this is a rounding error
_MAX_SUM: Final = 1.02  # of the probabilities at one position
_MAX_ODD_SHARE: Final = 0.1  # the share of odd tokens that a response may have
_NO_LETTERS: Final = re.compile(r"[^0-9a-z]+")
_RUN: Final = 5  # letters
_SPECULATIVE: Final = (
    "speculative decoding on the server does this: switch it off, or count votes with "
    "on_missing_confidence='count'"
)
_TRUNCATED: Final = (
    f"more than one alternative in ten is {FLOOR:g} or less (-9999.0, -inf), as where "
    "a server reports what is left after top_k, top_p or a grammar: let it report raw "
    "log-probabilities (vLLM: --logprobs-mode raw_logprobs), or use 'token_logprob'"
)


class Token(NamedTuple):
    """A generated token as the provider describes it, unchecked.

    Attributes:
        size: bytes of its text in UTF-8; None where the provider does not give the
            text.
        logprob: its log-probability, or whatever stands in that place.
        alternatives: the log-probabilities of the most likely tokens at its position,
            in any order, with or without the token itself.
        spelled: its text in UTF-8; None where the provider does not give it.
    """

    size: int | None
    logprob: object
    alternatives: tuple[object, ...] = ()
    spelled: bytes | None = None


Reader = Callable[[Mapping[str, Any]], Sequence[Token] | None]
"""Returns the tokens in a response's ``response_metadata``; None if they are not in the
shape that it reads.
"""


def register_reader(*keys: str) -> Callable[[Reader], Reader]:
    """Add a reader for a shape of your own; it is asked before the others.

    Args:
        *keys: where in ``response_metadata`` it finds the tokens. It is asked of a
            response that has one of them. Like the provider's own logprobs, they are
            left out of the winning message where the caller did not ask for them.

    Raises:
        ConfigurationError: no key is named.

    Example:
        >>> @register_reader("details")
        ... def from_details(metadata):
        ...     return [Token(len(t["text"]), t["logprob"]) for t in metadata["details"]["tokens"]]
    """
    if not keys or not all(isinstance(key, str) for key in keys):
        raise ConfigurationError(
            "a reader is registered by the keys of response_metadata that it reads, got "
            f'{keys!r}; write @register_reader("details")'
        )

    def register(reader: Reader) -> Reader:
        _READERS.insert(0, (frozenset(keys), reader))
        LOGPROBS_KEYS.update(keys)
        return reader

    return register


def read_tokens(metadata: Mapping[str, Any]) -> Sequence[Token]:
    """Return the tokens of a response, by the first reader that knows the shape; empty
    if there are none.

    Raises:
        LogprobsUnavailable: there are log-probabilities in a shape that no reader
            knows.
    """
    for keys, reader in _READERS:
        if keys.isdisjoint(metadata):
            continue
        tokens = reader(metadata)
        if tokens is not None:
            return tokens
    payload = metadata.get("logprobs")
    if payload is None and metadata.get("avg_logprobs") is not None:
        raise LogprobsUnavailable(
            "the response carries only its average log-probability (avg_logprobs), and "
            "a confidence needs one per token: ask for them (ChatVertexAI: logprobs=5)"
        )
    if payload is None or (isinstance(payload, Mapping | list) and not payload):
        return ()
    shape = type(payload).__name__
    if isinstance(payload, Mapping):
        shape = f"a dict of {', '.join(map(str, payload))}"
    raise LogprobsUnavailable(
        "the response's logprobs are in a shape that no reader knows "
        f"({shape:.200}); add one with langchain_reasc.register_reader"
    )


def _entries(metadata: Mapping[str, Any]) -> Sequence[Token] | None:
    """A list of entries, one for each token. OpenAI's chat API and its copies have it in
    ``logprobs.content``, or in ``logprobs.refusal`` if the model refused; ChatOllama in
    ``logprobs``, ChatVertexAI in ``logprobs_result``.

    https://platform.openai.com/docs/api-reference/chat/object; ollama-python
    ``_types.py`` (``Logprob``); langchain-google-vertexai
    ``_utils.get_generation_info``
    """
    payload = metadata.get("logprobs")
    lists = (
        _field(payload, "content"),
        _field(payload, "refusal"),
        payload,
        metadata.get("logprobs_result"),
    )
    for entries in filter(_is_list, lists):
        if entries:
            return [
                _token(
                    _field(entry, "token"),
                    _field(entry, "bytes"),
                    _logprob(entry),
                    _field(entry, "top_logprobs"),
                )
                for entry in entries
            ]
    # Of a stream, an empty list is all that arrives before the first token.
    if isinstance(payload, Mapping) and payload.keys() <= {"content", "refusal"}:
        return ()
    return None


def _parallel_arrays(metadata: Mapping[str, Any]) -> Sequence[Token] | None:
    """The older completions API, Together's and Fireworks' chat: parallel arrays,
    ``top_logprobs`` a dict per token.

    https://platform.openai.com/docs/api-reference/completions/object, together-python
    ``types/log_probs.py``, https://docs.fireworks.ai/api-reference/post-chatcompletions
    """
    payload = metadata.get("logprobs")
    chosen = _field(payload, "token_logprobs")
    if not _is_list(chosen):
        return None
    texts = _aligned(len(chosen), _field(payload, "tokens"))
    ranked = _aligned(len(chosen), _field(payload, "top_logprobs"))
    return [
        _token(text, None, value, alternatives)
        for text, value, alternatives in zip(texts, chosen, ranked, strict=True)
    ]


def _gemini(metadata: Mapping[str, Any]) -> Sequence[Token] | None:
    """Gemini's own: chosen candidates beside a list of candidates per position.

    https://ai.google.dev/api/generate-content#LogprobsResult
    """
    payload = metadata.get("logprobs_result") or metadata.get("logprobsResult")
    chosen = _field(payload, "chosen_candidates", "chosenCandidates")
    if not _is_list(chosen):
        return None
    ranked = _aligned(len(chosen), _field(payload, "top_candidates", "topCandidates"))
    return [
        _token(
            _field(entry, "token"),
            None,
            _logprob(entry),
            _field(alternatives, "candidates"),
        )
        for entry, alternatives in zip(chosen, ranked, strict=True)
    ]


_OPENAI = frozenset({"logprobs"})
_GEMINI = frozenset({"logprobs_result", "logprobsResult"})
_READERS: list[tuple[frozenset[str], Reader]] = [
    (_OPENAI | _GEMINI, _entries),
    (_OPENAI, _parallel_arrays),
    (_GEMINI, _gemini),
]
LOGPROBS_KEYS: Final = {*_OPENAI, *_GEMINI}
"""Where in ``response_metadata`` the log-probabilities of tokens stand: the keys of all
readers.
"""


class _Numbers(tuple[object, ...]):
    """What :func:`without_texts` keeps."""

    __slots__ = ()


def without_texts(entry: Any) -> Any:
    """Keep only the log-probabilities of the alternatives in an entry as in OpenAI's
    chat API, and return the entry.

    The readers read it as before, but it takes a fraction of the memory. Most of the
    time that 20 alternatives cost goes into memory, and into Python's garbage
    collector.
    """
    ranked = entry.get("top_logprobs") if isinstance(entry, dict) else None
    if isinstance(ranked, list):
        entry["top_logprobs"] = _Numbers(
            _alternatives(ranked, entry.get("token"), _logprob(entry))
        )
    return entry


def _token(text: Any, raw: Any, logprob: object, ranked: object) -> Token:
    """A token, with the bytes of its text if the provider gives no bytes."""
    size = None
    spelled = None
    if _is_list(raw) and raw:
        size = len(raw)
        with suppress(OverflowError, TypeError, ValueError):
            spelled = bytes(raw)
    elif isinstance(text, str):
        spelled = text.encode(errors="replace")
        size = len(spelled)
    return Token(size, logprob, _alternatives(ranked, text, logprob), spelled)


def _alternatives(ranked: Any, text: object, logprob: object) -> tuple[object, ...]:
    """The logprobs of a list of entries or of a dict."""
    if isinstance(ranked, _Numbers):
        return ranked
    if isinstance(ranked, Mapping):
        return tuple(ranked.values())
    if not _is_list(ranked):
        return ()
    values = [_logprob(entry) for entry in ranked]
    # Some servers put the chosen token first, and then rank it once more.
    if type(logprob) is float and isinstance(text, str) and values.count(logprob) > 1:
        same = [
            index
            for index, entry in enumerate(ranked)
            if values[index] == logprob and _field(entry, "token") == text
        ]
        for index in reversed(same[1:]):
            del values[index]
    return tuple(values)


def _logprob(entry: Any) -> Any:
    # This is faster, and a long response has ten thousand.
    if type(entry) is dict:
        value = entry.get("logprob")
        if value is not None:
            return value
    return _field(entry, "logprob", "log_probability", "logProbability")


def _field(entry: Any, *names: str) -> Any:
    """The first of these fields that a dict or an object has."""
    # Some clients give pydantic models.
    is_dict = type(entry) is dict or isinstance(entry, Mapping)
    for name in names:
        value = entry.get(name) if is_dict else getattr(entry, name, None)
        if value is not None:
            return value
    return None


def _is_list(value: object) -> bool:
    return isinstance(value, list) or (
        isinstance(value, Sequence) and not isinstance(value, str | bytes)
    )


def _aligned(n: int, values: Any) -> Sequence[Any]:
    """An array beside one of n tokens; n times None if its length differs."""
    if _is_list(values) and len(values) == n:
        return values  # type: ignore[no-any-return]
    return [None] * n


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """The log-probabilities of a response that passed the checks, in nats.

    Attributes:
        chosen: the log-probabilities of the generated tokens, shape (T,), 0 at most.
        alternatives: those of the k most likely tokens at each position, shape (T, k),
            descending.
        places: which of the provider's tokens these are, shape (T,), ascending.
        notices: what was odd and what was done about it; without numbers, so that many
            responses give one.
        withheld: signal -> why it cannot be made of these.
    """

    chosen: Floats
    alternatives: Floats
    places: npt.NDArray[np.intp]
    notices: tuple[str, ...] = ()
    withheld: Mapping[str, str] = field(default_factory=dict)

    @property
    def k(self) -> int:
        """Alternatives per token."""
        return int(self.alternatives.shape[1])


def check_logprobs(tokens: Sequence[Token], *, text: str = "") -> TokenLogprobs:
    """Return the log-probabilities of a provider that pass all checks.

    Args:
        tokens: the tokens as a reader found them; at least one.
        text: the response, which the tokens must spell out.

    Raises:
        LogprobsUnavailable: too many are missing, or they cannot be log-probabilities
            of this text.
    """
    _check_spelling(tokens, text)
    last = tokens[-1]
    # vLLM gives the end token no log-probability after a grammar. NaN is not above.
    drops_end = (
        len(tokens) > 1 and last.size == 0 and not _as_float(last.logprob) > FLOOR
    )
    if drops_end:
        tokens = tokens[:-1]
    chosen, table = _as_arrays(tokens)
    keep, notices = _screen_tokens(chosen, table)
    if drops_end:
        notices.append(
            "the end token carries no log-probability, and is left out of the confidence"
        )
    _refuse_all_zeros(chosen[keep], table[keep])
    return _trim_alternatives(chosen, table, keep, notices)


def _trim_alternatives(
    chosen: Floats, table: Floats, keep: Mask, notices: list[str]
) -> TokenLogprobs:
    """The believed tokens with k alternatives each, k being as many as nine in ten
    have.
    """
    counts = np.count_nonzero(~np.isnan(table), axis=1)
    k = int(np.sort(counts[keep])[int(_MAX_ODD_SHARE * np.count_nonzero(keep))])
    most = int(counts[keep].max())
    if (keep & (counts < k)).any():
        notices.append(
            "some tokens came with fewer alternatives than the others, and are left "
            "out of the confidence"
        )
    withheld: dict[str, str] = {}
    if k == 0:
        reason = (
            "no alternatives came with the tokens: ask for them (top_logprobs=20), or "
            "use 'token_logprob'"
        )
        if most:
            reason = "alternatives came with some tokens only, so none are used"
            notices.append(reason)
        withheld = {"top_k": reason, "neg_entropy": reason}
    # Some servers return one more for a token that is not among the k most likely.
    elif most > k + 1:
        notices.append(
            "tokens came with different numbers of alternatives; the smallest is used"
        )
    if k == 1:
        withheld["neg_entropy"] = (
            "one alternative per token has no entropy: ask for more (top_logprobs=20)"
        )
    # A table needs k values of each token.
    keep &= counts >= k
    alternatives = table[keep, :k]
    below = alternatives <= FLOOR
    if np.count_nonzero(below) > _MAX_ODD_SHARE * below.size:
        withheld["top_k"] = _TRUNCATED
        notices.append(f"no 'top_k' signal: {_TRUNCATED}")
    elif below.any():
        notices.append(
            f"alternatives of {FLOOR:g} and less (-9999.0, -inf) are taken as {FLOOR:g}"
        )
    return TokenLogprobs(
        chosen[keep],
        np.maximum(alternatives, FLOOR),
        places=np.flatnonzero(keep),
        notices=tuple(notices),
        withheld=withheld,
    )


def _check_spelling(tokens: Sequence[Token], text: str) -> None:
    """Refuse tokens that spell another text than the response, or only a part of it."""
    sizes = [token.size for token in tokens if token.size is not None]
    whole = len(text.encode(errors="replace"))
    if len(sizes) == len(tokens) and sum(sizes) < (1 - _MAX_ODD_SHARE) * whole:
        raise LogprobsUnavailable(
            f"log-probabilities came for {len(tokens)} tokens, which spell "
            f"{sum(sizes)} of the response's {whole} bytes; a confidence in part of a "
            "response says nothing of the rest"
        )
    pieces = bytes_of_tokens(tokens)
    if not text or pieces is None:
        return
    spelled = b"".join(pieces).decode(errors="replace")
    if not _could_spell(spelled, text):
        raise LogprobsUnavailable(
            "the log-probabilities are of another text than the response: their tokens "
            f"spell {spelled[:40]!r}, the response is {text[:40]!r}"
        )


def bytes_of_tokens(tokens: Sequence[Token]) -> list[bytes] | None:
    """Return what each token spells; None if the provider does not say it of all."""
    pieces = [token.spelled for token in tokens if token.spelled is not None]
    return pieces if len(pieces) == len(tokens) else None


def _could_spell(spelled: str, text: str) -> bool:
    """Whether tokens may be those of a text, by its ASCII letters and digits.

    Tokens may spell more, such as reasoning, and a text may have been tidied up. So
    half of the text's runs of five letters are enough.
    """
    # Ids, parts of characters and byte-level alphabets do not tell what tokens spell.
    if spelled.startswith("token_id:") or "\ufffd" in spelled:
        return True
    letters = _NO_LETTERS.sub("", text.casefold())
    spelled_letters = _NO_LETTERS.sub("", spelled.casefold())
    if letters in spelled_letters:
        return True
    n_runs = max(1, len(letters) - _RUN + 1)
    runs = {letters[index : index + _RUN] for index in range(n_runs)}
    return 2 * sum(run in spelled_letters for run in runs) >= len(runs)


def _as_arrays(tokens: Sequence[Token]) -> tuple[Floats, Floats]:
    """The tokens' values, shape (T,), and their alternatives', shape (T, widest),
    descending; NaN where none is.

    Raises:
        LogprobsUnavailable: a value is above zero, and so no log-probability.
    """
    chosen = np.array([_as_float(token.logprob) for token in tokens])
    widest = max(len(token.alternatives) for token in tokens)
    table = np.full((len(tokens), widest), np.nan)
    for row, token in zip(table, tokens, strict=True):
        values: Iterable[Any] = token.alternatives
        # Nearly all are floats, for which numpy is faster.
        if set(map(type, token.alternatives)) != {float}:
            values = list(map(_as_float, token.alternatives))
        row[: len(token.alternatives)] = values
    numbers = np.concatenate((chosen, table.ravel()))
    above = numbers[numbers > _ROUNDING]
    if above.size:
        is_probability = np.nanmin(numbers) >= 0 and np.nanmax(numbers) <= 1
        hint = "; these look like probabilities" if is_probability else ""
        raise LogprobsUnavailable(
            f"the server returned {above[0]:g} as a log-probability, which is none{hint}"
        )
    # NaN sorts to the end, also where all are negated.
    descending = -np.sort(-table, axis=1)
    return np.minimum(chosen, 0), np.minimum(descending, 0)


def _as_float(value: Any) -> float:
    """A float of a number as JSON gives it; NaN of anything else."""
    # Some encoders write "NaN" as a string.
    if isinstance(value, bool) or not isinstance(value, int | float | str | np.number):
        return float("nan")
    try:
        return float(value)
    except (ValueError, OverflowError, TypeError):
        return float("nan")


def _screen_tokens(chosen: Floats, table: Floats) -> tuple[Mask, list[str]]:
    """Return which tokens can be believed, shape (T,), and notices of the others.

    Raises:
        LogprobsUnavailable: more than one in ten cannot.
    """
    counts = np.count_nonzero(~np.isnan(table), axis=1)
    # Beside tokens with alternatives, a zero without one below it stands for no value.
    # If only one alternative was asked for, it is the certain token itself.
    blank = (
        (chosen == 0)
        & ~(table < 0).any(axis=1)
        & ((counts < counts.max()) | (counts.max() > 1))
    )
    oddities = {
        "carry no log-probability (null or NaN)": np.isnan(chosen),
        "have a log-probability that no generated token can have "
        f"({FLOOR:g} or less, as -9999.0)": chosen <= FLOOR,
        f"are certain (0.0) without an alternative that is not; {_SPECULATIVE}": (
            blank & (len(chosen) > 1)
        ),
        "have alternatives whose probabilities sum to more than 1": (
            _sums_above_one(chosen, table)
        ),
    }
    keep = np.ones(len(chosen), dtype=bool)
    notices = []
    for oddity, mask in oddities.items():
        # A token counts for its first oddity only.
        odd = mask & keep
        keep &= ~odd
        if len(keep) - np.count_nonzero(keep) > _MAX_ODD_SHARE * len(keep):
            raise LogprobsUnavailable(
                f"{np.count_nonzero(odd)} of {len(keep)} tokens {oddity}"
            )
        if odd.any():
            notices.append(f"some tokens {oddity}; they are left out of the confidence")
    return keep, notices


def _sums_above_one(chosen: Floats, table: Floats) -> Mask:
    """Positions at which the alternatives sum to more than 1, with the chosen token if
    it is not one of them.
    """
    # NaN stays NaN.
    floored = np.maximum(table, FLOOR)
    floored_chosen = np.maximum(chosen, FLOOR)
    is_listed = (np.abs(floored - floored_chosen[:, None]) <= _ROUNDING).any(axis=1)
    unlisted = np.where(is_listed | np.isnan(chosen), 0, np.exp(floored_chosen))
    above: Mask = np.nansum(np.exp(floored), axis=1) + unlisted > _MAX_SUM
    return above


def _refuse_all_zeros(chosen: Floats, table: Floats) -> None:
    """Refuse a certainty about every token, or every token but the first, unless some
    alternative is possible.
    """
    rest = slice(1, None) if len(chosen) > 3 else slice(None)
    # Truncation to one token leaves alternatives at the floor, which are not possible.
    is_possible = (table[rest] < 0) & (table[rest] > FLOOR)
    if len(chosen) > 1 and not chosen[rest].any() and not is_possible.any():
        raise LogprobsUnavailable(
            f"every token logprob is exactly 0.0, which no model returns; {_SPECULATIVE}"
        )
