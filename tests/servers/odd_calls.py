"""Streams of tool calls that are not quite OpenAI's, and the calls that they stand for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["LOST", "ODD_CALLS", "OddCalls", "Piece"]


@dataclass(frozen=True)
class Piece:
    """A piece of a call, in an event of its own."""

    index: int | None
    id: str | None
    name: str | None
    arguments: Any

    def delta(self) -> dict[str, Any]:
        """The piece in OpenAI's form; with no index it has no such field."""
        index = {} if self.index is None else {"index": self.index}
        function = {"name": self.name, "arguments": self.arguments}
        return {**index, "id": self.id, "type": "function", "function": function}


@dataclass(frozen=True)
class OddCalls:
    """Pieces of calls, and the calls: names and arguments; None for a response whose calls may not be used."""

    pieces: Sequence[Piece]
    calls: Sequence[tuple[str, dict[str, Any]]] | None
    finish: str = "tool_calls"


LOST: Final = "a piece that nobody can place"
X = '{"x": 1}'
HEAD, SECOND = Piece(0, "a", "f", ""), Piece(1, "b", "g", "")
F: tuple[str, dict[str, Any]] = ("f", {})
F_X, G_X = ("f", {"x": 1}), ("g", {"x": 1})
ODD_CALLS: Final[dict[str, OddCalls]] = {
    # No arguments
    "empty": OddCalls([HEAD], [F]),
    "an empty object": OddCalls([Piece(0, "a", "f", "{}")], [F]),
    "null": OddCalls([Piece(0, "a", "f", None)], [F]),
    "the word null": OddCalls([HEAD, Piece(0, None, None, "nu"), Piece(0, None, None, "ll")], [F]),
    "the word None": OddCalls([Piece(0, "a", "f", "None")], [F]),
    "white space": OddCalls([HEAD, Piece(0, None, None, " "), Piece(0, None, None, "\n")], [F]),
    "much white space": OddCalls([HEAD, *[Piece(0, None, None, " ")] * 40], [F]),
    "white space before arguments": OddCalls([HEAD, Piece(0, None, None, " \n"), Piece(0, None, None, X)], [F_X]),
    "empty, and another call": OddCalls([HEAD, SECOND, Piece(1, None, None, X)], [F, G_X]),
    "another call, and empty": OddCalls([Piece(0, "a", "f", X), SECOND], [F_X, ("g", {})]),
    "empty, stopped": OddCalls([HEAD], [F], finish="stop"),
    "empty, cut off": OddCalls([HEAD], None, finish="length"),
    "null, cut off": OddCalls([Piece(0, "a", "f", None)], None, finish="length"),
    "half of null": OddCalls([HEAD, Piece(0, None, None, "nul")], None),
    # Two indices
    "arguments under the next index": OddCalls([HEAD, Piece(1, None, None, X)], [F_X]),
    "and in pieces": OddCalls([HEAD, Piece(1, None, None, X[:4]), Piece(1, None, None, X[4:])], [F_X]),
    "with empty texts": OddCalls([HEAD, Piece(1, "", "", X)], [F_X]),
    "with the id of the call": OddCalls([HEAD, Piece(1, "a", None, X)], [F_X]),
    "with its id and name": OddCalls([HEAD, Piece(1, "a", "f", X)], [F_X]),
    "two calls one after another": OddCalls(
        [HEAD, Piece(1, None, None, X), Piece(2, "b", "g", ""), Piece(3, None, None, X)], [F_X, G_X]
    ),
    "an index that the next call has, too": OddCalls(
        [HEAD, Piece(1, None, None, X), SECOND, Piece(2, None, None, X)], [F_X, G_X]
    ),
    "after a whole call": OddCalls([Piece(0, "a", "f", X), SECOND, Piece(2, None, None, X)], [F_X, G_X]),
    "a piece that says nothing": OddCalls([Piece(0, "a", "f", X), Piece(1, None, None, "")], [F_X]),
    "a name after its arguments": OddCalls(
        [Piece(0, "a", "", ""), Piece(0, None, None, X), Piece(0, None, "f", "")], [F_X]
    ),
    "no index": OddCalls([Piece(None, "a", "f", ""), Piece(None, None, None, X)], [F_X]),
    "one index for all": OddCalls(
        [HEAD, Piece(0, None, None, X), Piece(0, "b", "g", ""), Piece(0, None, None, X)], [F_X, G_X]
    ),
    # Nobody knows whose they are
    LOST: OddCalls([HEAD, SECOND, Piece(2, None, None, X)], None),
    "a piece after whole calls": OddCalls([Piece(0, "a", "f", X), Piece(1, None, None, X)], None),
    "a piece with another id": OddCalls([HEAD, Piece(1, "z", None, X)], None),
    "an id without a name": OddCalls([Piece(0, "a", "f", X), Piece(1, "b", None, "")], None),
    "arguments before the call": OddCalls([Piece(0, None, None, X), SECOND], None),
    "never a name": OddCalls([Piece(0, "a", None, X)], None),
}
