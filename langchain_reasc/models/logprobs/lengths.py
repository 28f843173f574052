"""How long each token of a response is, in characters of its text: with the text, that is where each of them stands."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate

import numpy as np
from langchain_core.messages import BaseMessage

from langchain_reasc.exceptions import LogprobsUnavailable
from langchain_reasc.models.contract import TOKEN_SIGNALS
from langchain_reasc.models.logprobs.deciding import spelled_by
from langchain_reasc.models.logprobs.shapes import tokens_of

__all__ = ["lengths_of", "token_lengths"]


def token_lengths(message: BaseMessage) -> list[int] | None:
    """Characters of the message's text that each of its generated tokens spells; their sum is the text's length.

    A token that spells nothing of the text has 0: one of the reasoning before it, an end token, a stop string. So has
    the rest of a character that is split over several tokens: it counts for the one in which it begins.

    Args:
        message: a response, as a model gave it.

    Returns:
        As many numbers as tokens were generated; None where the provider or backend does not say what they spell, or
        they do not spell the text. Where only some tokens carry a signal there are more numbers than values.
    """
    metadata = message.response_metadata
    if metadata.get(TOKEN_SIGNALS):
        pieces = spelled_by(metadata)
    else:
        pieces = None
        with suppress(LogprobsUnavailable):
            spelled = [token.spelled for token in tokens_of(metadata)]
            known = [one for one in spelled if one is not None]
            pieces = known if len(known) == len(spelled) else None
    return lengths_of(pieces, str(message.text)) if pieces else None


def lengths_of(pieces: Sequence[bytes], text: str) -> list[int] | None:
    """The same of tokens of which it is known what they spell.

    Args:
        pieces: what each token spells, in UTF-8.
        text: the response's text.

    Returns:
        None where the tokens do not spell the text, and where it is empty.
    """
    encoded = [len(character.encode(errors="replace")) for character in text]
    begin = b"".join(pieces).rfind(text.encode(errors="replace"))
    if begin < 0 or not text:
        return None
    starts = begin + np.cumsum([0, *encoded[:-1]])  # of each character, in bytes
    ends = np.fromiter(accumulate(map(len, pieces)), dtype=np.intp, count=len(pieces))
    return [int(n) for n in np.diff(np.searchsorted(starts, ends, side="left"), prepend=0)]
