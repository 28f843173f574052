"""The labels of a decision, and which of them a response names."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from langchain_core.messages import AIMessage

from langchain_reasc.answers import Extractor, boxed_content, statements, vote_of
from langchain_reasc.exceptions import ConfigurationError

__all__ = ["ANY_LABEL", "Labels"]

_NAME: Final = "decision"
_TAGGED: Final = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.IGNORECASE | re.DOTALL)
_OPENING: Final = re.compile("<answer>", re.IGNORECASE)
_AROUND: Final = " .!:;,\"'`*_“”„‘’«»()[]<>"


class Labels:
    """The labels of one decision, and the reading of responses that name one.

    A response names the label between its last ``<answer>`` and ``</answer>``; without such marks, the one in its last
    box, the one that it says to be the answer, or the one that stands alone on its last line. It must be the whole of
    what stands there: "not yes" does not name "yes". As a model may write *Billing* for billing, case, spaces, and
    quotes or emphasis around a label do not matter where that leaves no doubt which label is meant.

    Args:
        names: the labels; at least one.

    Raises:
        ConfigurationError: no label, or one that no response could name.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        if not self.names:
            raise ConfigurationError("a decision needs a label to choose")
        self._spellings = [(spelled, _by_spelling(self.names, spelled)) for spelled in (str, str.strip, _folded)]
        for name in self.names:
            if not name.strip() or self.named(f"<answer>{name}</answer>") != name:
                raise ConfigurationError(
                    f"no response could name the label {name!r}: a label has a word or sign in it, and no <answer> or "
                    "</answer>"
                )

    def named(self, text: str, *, cut_off: bool = False) -> str | None:
        """The label that a text names, as it was given; None where it names none.

        Args:
            text: a response, without its reasoning.
            cut_off: whether it was cut off before its end: what it was saying there is then not said.
        """
        return next(filter(None, map(self._label, _said(text, cut_off=cut_off))), None)

    @property
    def extractor(self) -> Extractor:
        """Finds the label that a response names; tools that it calls, a refusal and the like name none."""
        in_text = Extractor(
            self.named, _NAME, explicit=partial(self.named, cut_off=True), over_tool_calls=True, canonical=str
        )

        def in_message(message: AIMessage) -> str | None:
            answer = vote_of(message, in_text).answer
            return answer if answer in self.names else None  # calls of tools are a vote elsewhere

        return Extractor(in_message, _NAME, over_tool_calls=True, reads_message=True, canonical=str)

    def _label(self, said: str) -> str | None:
        return next((found for spelled, by in self._spellings if (found := by.get(spelled(said)))), None)


def _by_spelling(names: Iterable[str], spelled: Callable[[str], str]) -> dict[str, str | None]:
    """Spelling -> label; None where it may be one of several, or says nothing."""
    by: dict[str, str | None] = {"": None}
    for name in names:
        spelling = spelled(name)
        by[spelling] = None if spelling in by else name
    return by


def _said(text: str, *, cut_off: bool) -> Iterator[str]:
    """What may be a label, the most explicit first; marks that hold something else leave no other."""
    if (marked := _marked(text, cut_off=cut_off)) is not None:
        yield marked
        return
    yield from (said for said, _ in statements(text, cut_off=cut_off))
    if not cut_off:
        yield text.rstrip().rpartition("\n")[2]


def _marked(text: str, *, cut_off: bool = False) -> str | None:
    if tagged := _last(_TAGGED, text):
        return tagged[1]
    if not cut_off and (opening := _last(_OPENING, text)):  # a stop string may have taken the closing mark away
        return text[opening.end() :]
    return boxed_content(text, cut_off=cut_off)


def _last(mark: re.Pattern[str], text: str) -> re.Match[str] | None:
    last = None
    for match in mark.finditer(text):
        last = match
    return last


def _folded(label: str) -> str:
    """The spelling in which case, width, spaces, and what may stand around a label say nothing."""
    return " ".join(unicodedata.normalize("NFKC", label).casefold().split()).strip(_AROUND)


ANY_LABEL: Final = Extractor(_marked, _NAME, explicit=partial(_marked, cut_off=True), canonical=_folded)
"""What a response marks as its answer, whatever the labels are; for calibrating on decisions of many kinds."""
