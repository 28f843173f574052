"""Where a response says itself what its answer is: a box, ``<answer>``, ``####``, "the answer is" in many languages."""

import re
from collections.abc import Iterator

from langchain_reasc.answers.json_objects import field_of_last_object
from langchain_reasc.answers.marks import boxed_content
from langchain_reasc.answers.normalize import without_unit
from langchain_reasc.answers.statement import told

__all__ = ["explicit_answer", "marked_answer", "statements"]

_REACH = 300
"""Characters behind a cue in which its answer must begin and end."""
_OCCURRENCES = 20
"""How many places of each cue are looked at, counted from the end of the response."""

_DECIMAL_POINT = ("answer", "ans.", "ans:", "答案", "答え", "정답", "الإجابة", "الجواب", "उत्तर", "đáp án")
_DECIMAL_COMMA = (
    *("antwort", "réponse", "respuesta", "resposta", "risposta", "antwoord", "odpowied", "svar", "cevap"),
    "ответ",
)
_MARKUP = r"[\s*_`>]"
_LINK = re.compile(
    rf"""[^\W\d_]{{0,3}}                                                    # answers, svaret, odpowiedź
    (?:\ (?:to|for)\ (?:the|this|your|that)\ [\w'\ ]{{0,40}}?|\ (?:here|choice|option|letter|correcta|correcte))?
    {_MARKUP}*
    (?: (?:is|was|are|equals|would\ be|will\ be|must\ be|should\ be|has\ to\ be|comes\ out\ (?:to|as)|then|
           ist|lautet|est|es|é|è|jest|to|är|là)(?![^\W\d_])
      | 是|为|為|は|는|은|هي|هو | [:=：] | [-–—](?=\s) | (?<=[:.])(?=\s))
    (?:{_MARKUP}|[:：=])*""",
    re.VERBOSE | re.IGNORECASE,
)
_HEADING = re.compile(rf"(?:{_MARKUP}|:)*\n\s*")
_BEFORE_HEADING = re.compile(r"[\s#*_>\W]*(?:(?:the|final|correct|my|your)\s+)*", re.IGNORECASE)
_SENTENCE = re.compile(
    r"(?P<said>.*?)(?P<end>[.!?][\"')*_`\]$]*(?=\s)|\\?\)?[。！？]|\n|(?=</)|[.!?][\"')*_`\]$]*\Z|\Z)", re.DOTALL
)
_TURNED_ROUND = re.compile(r"(?:\A|[.!?:;,]\s|\n)([^.!?;,\n]{1,60}?)\s+is\s+(?:the|my)\s+(?:\w+\s+)?\Z")
_TAG = re.compile(r"<answer>(?P<inside>(?:(?!<answer>).){0,300}?)</answer>", re.IGNORECASE | re.DOTALL)
_NUMBER_FIRST = re.compile(r"\s*[-−–+$€£\\.]*\d")


def explicit_answer(text: str, *, cut_off: bool = False) -> str | None:
    """What a text says its answer is; None where it does not say.

    Args:
        text: a response, without its reasoning.
        cut_off: whether it ends where the model was stopped: what it was saying there is then not said.
    """
    if (marked := marked_answer(text, cut_off=cut_off)) is not None:
        return marked
    answers = (told(said, comma_decimal=comma) for said, comma in statements(text, cut_off=cut_off))
    return next(filter(None, answers), None)


def marked_answer(text: str, *, cut_off: bool = False) -> str | None:
    """The content of the last box; else of the last ``<answer>``, or field of that name; else what follows ``####``."""
    inside = boxed_content(text, cut_off=cut_off)
    if inside is not None and inside.strip():
        return without_unit(inside)
    if tagged := _last_tagged(text):
        return told(tagged) or tagged
    if field := field_of_last_object(text, "answer", cut_off=cut_off):
        return field
    at = text.rfind("####")
    if at < 0 or text.startswith("#####", max(at - 1, 0)):
        return None
    line, newline, _ = text[at + 4 : at + _REACH].partition("\n")
    if not _NUMBER_FIRST.match(line) or (cut_off and not newline):  # else a heading of the fourth level
        return None
    return told(line)


def statements(text: str, *, cut_off: bool = False) -> Iterator[tuple[str, bool]]:
    """What stands behind "the answer is" and the like, the last first, and whether its language has decimal commas."""
    lowered = _lowered(text)
    for at, cue in _cues(lowered):
        behind = text[at + len(cue) : at + len(cue) + _REACH]
        found = (_HEADING.match(behind) if _is_headed(text, at) else None) or _LINK.match(behind)
        if found is None:
            before = _TURNED_ROUND.search(text[max(at - 120, 0) : at])
            if before and re.search(r"\d|\b[A-J]\b", before[1]):  # "what is the answer" says nothing
                yield before[1], False
            continue
        sentence = _SENTENCE.match(behind, found.end())
        if sentence is None or sentence["end"].startswith("?") or (cut_off and not _is_ended(sentence)):
            continue
        said = sentence["said"]
        if "\n" in found[0]:
            if not _is_short(said):  # "Answer:" may head a long solution
                continue
            said = said.removeprefix("- ")  # of a list
        yield said, cue in _DECIMAL_COMMA


def _cues(lowered: str) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for cue in (*_DECIMAL_POINT, *_DECIMAL_COMMA):
        at = len(lowered)
        for _ in range(_OCCURRENCES):
            at = lowered.rfind(cue, 0, at)
            if at < 0:
                break
            if at == 0 or not lowered[at - 1].isascii() or not lowered[at - 1].isalnum():
                found.append((at, cue))
    return sorted(found, reverse=True)


def _lowered(text: str) -> str:
    """The text in small letters, each character at its place."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(small if len(small := sign.lower()) == 1 else sign for sign in text)


def _is_headed(text: str, at: int) -> bool:
    """Whether nothing but marks of a heading stands before a cue on its line."""
    start = text.rfind("\n", 0, at) + 1
    return at - start < 60 and _BEFORE_HEADING.fullmatch(text, start, at) is not None


def _is_ended(sentence: re.Match[str]) -> bool:
    return sentence["end"] == "\n" or (bool(sentence["end"]) and sentence.end() < len(sentence.string))


def _is_short(said: str) -> bool:
    return len(said) <= 40 and len(said.split()) <= 4


def _last_tagged(text: str) -> str | None:
    at = _lowered(text).rfind("<answer>") if "<" in text else -1
    found = _TAG.match(text, at) if at >= 0 else None
    return found["inside"].strip() if found else None
