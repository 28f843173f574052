"""What a response must look like, as llama.cpp understands it."""

from dataclasses import dataclass

__all__ = ["Grammar"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """A GBNF grammar that every token of a response must keep to.

    Attributes:
        gbnf: the rules, in llama.cpp's own notation.
        root: the rule a response begins with.
        triggers: texts that switch the grammar on, from the text's own first byte; empty: it holds from the first
            token.
    """

    gbnf: str
    root: str = "root"
    triggers: tuple[str, ...] = ()
