"""Which log-probabilities can be believed, and what is done with the others.

The whole table is in ``backends/README.md``. One principle stands behind it: what a server did not say is left out,
withheld or refused, each with a message; it never becomes a number.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langchain_reasc.exceptions import LogprobsUnavailable
from langchain_reasc.models.logprobs.shapes import Token

__all__ = ["TokenLogprobs", "checked"]

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

FLOOR: Final = -100.0  # e^-100 is about what a float32 probability can hold; below stand "none at all" and sentinels
_ROUNDING: Final = 1e-3  # above zero by no more than this is arithmetic
_SUM: Final = 1.02
_TOLERATED: Final = 0.1  # the share of odd tokens that a response may have
_LETTERS: Final = re.compile(r"[^0-9a-z]+")
_RUN: Final = 5
_SPEC: Final = (
    "speculative decoding on the server does this: switch it off, or count votes with on_missing_confidence='count'"
)


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities of a response that can be believed, in nats.

    Attributes:
        chosen: the log-probabilities of the generated tokens, shape (T,), 0 at most.
        alternatives: those of the k most likely tokens at each position, shape (T, k), descending.
        places: which of the provider's tokens these are, shape (T,), ascending.
        notices: what was odd and what was done about it; without numbers, so that many responses give one.
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


def checked(tokens: Sequence[Token], *, text: str = "") -> TokenLogprobs:
    """What can be believed of a provider's log-probabilities.

    Args:
        tokens: the tokens as a reader found them; at least one.
        text: the response, which the tokens must spell out.

    Raises:
        LogprobsUnavailable: too much of it is missing, or it cannot be what it claims to be.
    """
    _check_spelled_out(tokens, text)
    ended = _ends_unknown(tokens)
    chosen, table = _numbers(tokens[:-1] if ended else tokens)
    _refuse_positive(chosen, table)
    chosen, table = np.minimum(chosen, 0), np.minimum(table, 0)
    keep, notices = _sort_out(chosen, table)
    notices += ["the end token carries no log-probability, and is left out of the confidence"] if ended else []
    _refuse_zeros(chosen[keep], table[keep])
    k, varying = _common_k(np.count_nonzero(~np.isnan(table[keep]), axis=1))
    short = keep & (np.count_nonzero(~np.isnan(table), axis=1) < k)
    if short.any():
        notices.append("some tokens came with fewer alternatives than the others, and are left out of the confidence")
    if varying:
        notices.append(varying)
    keep &= ~short
    alternatives, clipped, withheld = _clipped(table[keep, :k])
    withheld = _without_alternatives(k, varying) | withheld
    return TokenLogprobs(chosen[keep], alternatives, np.flatnonzero(keep), (*notices, *clipped), withheld)


def _check_spelled_out(tokens: Sequence[Token], text: str) -> None:
    sizes = [token.size for token in tokens]
    known = [size for size in sizes if size is not None]
    whole = len(text.encode(errors="replace"))
    if len(known) == len(sizes) and sum(known) < (1 - _TOLERATED) * whole:
        raise LogprobsUnavailable(
            f"log-probabilities came for {len(tokens)} tokens, which spell {sum(known)} of the response's {whole} "
            "bytes; a confidence in part of a response says nothing of the rest"
        )
    spelled = b"".join(token.spelled or b"" for token in tokens)
    if text and all(token.spelled is not None for token in tokens) and not _may_spell(spelled, text):
        raise LogprobsUnavailable(
            f"the log-probabilities are of another text than the response: their tokens spell "
            f"{spelled.decode(errors='replace')[:40]!r}, the response is {text[:40]!r}"
        )


def _may_spell(spelled: bytes, text: str) -> bool:
    """Whether tokens may be those of a text, by its ASCII letters and digits.

    Tokens may hold more, such as reasoning, and a text may have been tidied up, so that half of its letters in runs of
    five are enough. Tokens that do not say what they spell, such as ids, parts of characters and the alphabet of
    byte-level vocabularies, are no evidence.
    """
    held = spelled.decode("utf-8", "replace")
    if held.startswith("token_id:") or "\ufffd" in held:
        return True
    ours, theirs = (_LETTERS.sub("", one.casefold()) for one in (text, held))
    if ours in theirs:
        return True
    runs = {ours[at : at + _RUN] for at in range(max(1, len(ours) - _RUN + 1))}
    return 2 * sum(run in theirs for run in runs) >= len(runs)


def _ends_unknown(tokens: Sequence[Token]) -> bool:
    """Whether the last of several tokens spells nothing and has no value, as vLLM's end token after a grammar."""
    last = tokens[-1]
    return len(tokens) > 1 and last.size == 0 and not _number(last.logprob) > FLOOR


def _numbers(tokens: Sequence[Token]) -> tuple[Floats, Floats]:
    """The tokens' values, shape (T,), and their alternatives', shape (T, widest), descending; NaN where none is."""
    chosen = np.array([_number(token.logprob) for token in tokens])
    table = np.full((len(tokens), max(len(token.alternatives) for token in tokens)), np.nan)
    for row, token in zip(table, tokens, strict=True):
        plain = set(map(type, token.alternatives)) == {float}
        row[: len(token.alternatives)] = token.alternatives if plain else list(map(_number, token.alternatives))
    return chosen, -np.sort(-table, axis=1)


def _number(value: Any) -> float:
    """A float of what JSON gives for a number (some encoders write "NaN" as a string); NaN of anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | np.number):
        return float("nan")
    try:
        return float(value)
    except (ValueError, OverflowError, TypeError):
        return float("nan")


def _refuse_positive(chosen: Floats, table: Floats) -> None:
    values = np.concatenate((chosen, table.ravel()))
    above = values[values > _ROUNDING]
    if above.size:
        known = values[~np.isnan(values)]
        hint = "; these look like probabilities" if known.min() >= 0 and known.max() <= 1 else ""
        raise LogprobsUnavailable(f"the server returned {above[0]:g} as a log-probability, which is none{hint}")


def _refuse_zeros(chosen: Floats, table: Floats) -> None:
    """Refuse a certainty about every token, or every token but the first, that no alternative speaks against.

    One that is too unlikely to report does not: it is all that truncation to one token leaves.
    """
    rest = slice(1, None) if len(chosen) > 3 else slice(None)
    if len(chosen) > 1 and not chosen[rest].any() and not ((table[rest] < 0) & (table[rest] > FLOOR)).any():
        raise LogprobsUnavailable(f"every token logprob is exactly 0.0, which no model returns; {_SPEC}")


def _sort_out(chosen: Floats, table: Floats) -> tuple[Mask, list[str]]:
    """Which tokens can be believed, shape (T,), and notices of the others.

    Raises:
        LogprobsUnavailable: more than one in ten cannot.
    """
    keep, notices = np.ones(len(chosen), dtype=bool), []
    for odd, what in (
        (np.isnan(chosen), "carry no log-probability (null or NaN)"),
        (chosen <= FLOOR, f"have a log-probability that no generated token can have ({FLOOR:g} or less, as -9999.0)"),
        (_blank(chosen, table), f"are certain (0.0) without an alternative that is not; {_SPEC}"),
        (_over_one(chosen, table), "have alternatives whose probabilities sum to more than 1"),
    ):
        odd = odd & keep  # of those that are believed so far
        keep &= ~odd
        if len(keep) - np.count_nonzero(keep) > _TOLERATED * len(keep):
            raise LogprobsUnavailable(f"{np.count_nonzero(odd)} of {len(keep)} tokens {what}")
        if odd.any():
            notices.append(f"some tokens {what}; they are left out of the confidence")
    return keep, notices


def _blank(chosen: Floats, table: Floats) -> Mask:
    """Zeros that stand for no value: where other tokens came with alternatives, these came with none below zero.

    Asked for one alternative only, a certain token is that one.
    """
    counts = np.count_nonzero(~np.isnan(table), axis=1)
    blank: Mask = (chosen == 0) & ~(table < 0).any(axis=1) & ((counts < counts.max()) | (counts.max() > 1))
    return blank & (len(chosen) > 1)


def _over_one(chosen: Floats, table: Floats) -> Mask:
    """Positions whose alternatives, and the chosen token where it is none of them, are more than one distribution."""
    table, chosen = np.maximum(table, FLOOR), np.maximum(chosen, FLOOR)  # NaN stays
    outside = ~(np.abs(table - chosen[:, None]) <= _ROUNDING).any(axis=1)
    total = np.nansum(np.exp(table), axis=1) + np.where(outside & ~np.isnan(chosen), np.exp(chosen), 0)
    over: Mask = total > _SUM
    return over


def _common_k(counts: npt.NDArray[np.intp]) -> tuple[int, str]:
    """The alternatives that nine in ten tokens have, and what to say where the numbers differ by more than one.

    One more is what some servers return for a token that is not among the k most likely.
    """
    k, most = int(np.sort(counts)[int(_TOLERATED * len(counts))]), int(counts.max())
    if k == 0 < most:
        return k, "alternatives came with some tokens only, so none are used"
    return k, "tokens came with different numbers of alternatives; the smallest is used" if most > k + 1 else ""


def _clipped(alternatives: Floats) -> tuple[Floats, tuple[str, ...], dict[str, str]]:
    """Alternatives no lower than the floor; the notice of that; and which signals would be made of the floor."""
    below = alternatives <= FLOOR
    if not below.any():
        return alternatives, (), {}
    held = np.maximum(alternatives, FLOOR)
    if np.count_nonzero(below) <= _TOLERATED * below.size:
        return held, (f"alternatives of {FLOOR:g} and less (-9999.0, -inf) are taken as {FLOOR:g}",), {}
    why = (
        f"more than one alternative in ten is {FLOOR:g} or less (-9999.0, -inf), as where a server reports what is "
        "left after top_k, top_p or a grammar: let it report raw log-probabilities (vLLM: --logprobs-mode "
        "raw_logprobs), or use 'token_logprob'"
    )
    return held, (f"no 'top_k' signal: {why}",), {"top_k": why}


def _without_alternatives(k: int, varying: str) -> dict[str, str]:
    if k == 1:
        return {"neg_entropy": "one alternative per token has no entropy: ask for more (top_logprobs=20)"}
    if k:
        return {}
    why = varying or "no alternatives came with the tokens: ask for them (top_logprobs=20), or use 'token_logprob'"
    return {"top_k": why, "neg_entropy": why}
