"""What a response must look like, in one of two notations."""

from dataclasses import dataclass
from typing import Final

__all__ = ["NO_FORCING", "Grammar"]

NO_FORCING: Final = '%llguidance {"no_forcing": true}\n'
"""What a text in llguidance's notation begins with: else it allows one way alone to spell what must come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """Rules that every token of a response must keep to.

    Attributes:
        gbnf: rules in llama.cpp's notation, from a user; None: ``lark`` has them.
        root: the rule of ``gbnf`` that a response begins with.
        lark: texts in llguidance's notation, to each of which a response must keep.
        triggers: texts that switch the grammar on, from the text's own first byte; empty: it holds from the first
            token.
    """

    gbnf: str | None = None
    root: str = "root"
    lark: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()
