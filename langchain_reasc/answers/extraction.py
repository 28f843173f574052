"""What an extractor is: a function from a response to its answer, or None."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import AIMessage

from langchain_reasc.answers.equivalence import Equivalence
from langchain_reasc.answers.normalize import normalize, without_unit
from langchain_reasc.answers.objects import ObjectVotes

__all__ = ["AnswerSpec", "Extractor"]


@dataclass(frozen=True)
class Extractor:
    """A function from a response to a normalized answer; ``a | b`` asks ``b`` where ``a`` finds none.

    Attributes:
        find: finds the raw answer, or None, in a text (with ``reads_message``, in the message).
        name: the name shown in messages.
        explicit: does the same in the text of a response that was cut off, where only what it explicitly states is an
            answer; where it is None, such a response casts no vote.
        over_tool_calls: whether its finding is the answer of a response that also calls tools.
        reads_message: whether ``find`` is given the ``AIMessage``.
        canonical: turns a raw answer into the spelling in which equal answers agree.
        without_units: whether what it finds has no unit, so that a label needs none either.
        blocks: whether finding an answer may take seconds, and is done beside an event loop.
        texts_vote: whether texts are compared. Where not, all of them vote for one and the same.
        objects: how the object is compared that is the answer; None where it is anything else.
        equivalence: tells which answers vote together that are not spelled alike; None where only such do that are.
        otherwise: the extractor that is asked where this one finds none.
    """

    find: Callable[[Any], str | None]
    name: str
    explicit: Callable[[str], str | None] | None = None
    over_tool_calls: bool = False
    reads_message: bool = False
    canonical: Callable[[str], str] = normalize
    without_units: bool = False
    blocks: bool = False
    texts_vote: bool = True
    objects: ObjectVotes | None = None
    equivalence: Equivalence | None = None
    otherwise: "Extractor | None" = None

    def __call__(self, response: str | AIMessage) -> str | None:
        """The answer in a text, or in a message."""
        given = _as_message(response) if self.reads_message else _as_text(response)
        return self._first(self.find(given), lambda other: other(response))

    def spelled(self, text: str, *, cut_off: bool = False) -> str | None:
        """The answer in a text as it was found there, before it takes the spelling in which equal answers agree."""
        if cut_off:
            found = self.explicit(text) if self.explicit else None
        else:
            found = self.find(_as_message(text) if self.reads_message else text)
        if found is None:
            return self.otherwise.spelled(text, cut_off=cut_off) if self.otherwise else None
        return str(found)

    def label(self, right: str) -> str:
        """The right answer as those would spell it that it finds: ``18 dollars`` is 18 where units are left out."""
        return self.canonical(without_unit(right) if self.without_units else right)

    def from_cut_off(self, text: str) -> str | None:
        """The answer that a text states explicitly, where it was cut off before its end."""
        found = self.explicit(text) if self.explicit else None
        return self._first(found, lambda other: other.from_cut_off(text))

    def __or__(self, other: "Extractor") -> "Extractor":
        rest = self.otherwise | other if self.otherwise else other
        own = self.name.split(" | ")[0]
        return replace(
            self,
            otherwise=rest,
            name=f"{own} | {rest.name}",
            over_tool_calls=self.over_tool_calls or other.over_tool_calls,
            blocks=self.blocks or other.blocks,
            equivalence=self.equivalence or other.equivalence,
        )

    def _first(self, found: str | None, ask: "Callable[[Extractor], str | None]") -> str | None:
        if found is None:
            return ask(self.otherwise) if self.otherwise else None
        return self.canonical(str(found)) or None


AnswerSpec = str | Extractor | Callable[[str], str | None]


def _as_text(response: str | AIMessage) -> str:
    return response if isinstance(response, str) else str(response.text)


def _as_message(response: str | AIMessage) -> AIMessage:
    return AIMessage(response) if isinstance(response, str) else response
