"""Where a response says itself what its answer is: a box, ``<answer>``, ``####``, "the answer is ...", in several languages."""

import re
from collections.abc import Iterator

from langchain_reasc.answers.marks import boxed_content, in_plain_marks
from langchain_reasc.answers.normalize import without_unit
from langchain_reasc.answers.numbers import QUANTITY

__all__ = ["explicit_answer", "marked_answer", "statements", "told"]

_REACH = 300
"""Characters behind a cue in which its answer must begin and end."""
_OCCURRENCES = 20
_WORDS = 6
"""Words up to which a statement without a number is an answer ("The answer is New York")."""

_CUES = (
    *("answer", "ans.", "ans:", "antwort", "réponse", "respuesta", "resposta", "risposta", "antwoord", "odpowied", "svar"),
    *("cevap", "ответ", "答案", "答え", "정답", "الإجابة", "الجواب", "उत्तर", "đáp án"),
)
_COMMA_DECIMAL = ("antwort", "réponse", "respuesta", "resposta", "risposta", "antwoord", "odpowied", "svar", "cevap", "ответ")
_MARKUP = r"[\s*_`>]"
_IS = (
    r"is|was|are|equals|would\ be|will\ be|must\ be|should\ be|has\ to\ be|comes\ out\ (?:to|as)|then|"
    r"ist|lautet|est|es|é|è|jest|to|är|là"
)
_LINK = re.compile(
    rf"""[^\W\d_]{{0,3}}                                                    # answers, svaret, odpowiedź
    (?:\ (?:to|for)\ (?:the|this|your|that)\ [\w'\ ]{{0,40}}?|\ (?:here|choice|option|letter|correcta|correcte))?
    {_MARKUP}*
    (?:(?:{_IS})(?![^\W\d_]) | 是|为|為|は|는|은|هي|هو | [:=：] | [-–—](?=\s) | (?<=[:.])(?=\s))
    (?P<gap>(?:{_MARKUP}|[:：=])*)""",
    re.VERBOSE | re.IGNORECASE,
)
_HEADING = re.compile(rf"(?:{_MARKUP}|:)*\n\s*")
_HEADED = re.compile(r"[\s#*_>\W]*(?:(?:the|final|correct|my|your)\s+)*", re.IGNORECASE)
_SENTENCE = re.compile(
    r"(?P<said>.*?)(?P<end>[.!?][\"')*_`\]$]*(?=\s)|\\?\)?[。！？]|\n|(?=</)|[.!?][\"')*_`\]$]*\Z|\Z)", re.DOTALL
)
_UNCLOSED = re.compile(r"\s\([^()]*\Z")  # an aside that the sentence's end cut through: (see p. 3)
_ASIDE = re.compile(r"\s\([^()]*\)[\s.!*]*\Z")
_CLAUSE = re.compile(
    r"\s*[,;:–—-]?\s(?:because|since|which|who|whose|where|while|although|though|given|compared|whereas|after\s|as\s|if\s|for\s\d)"
    r"|[,;]\s(?:so|and\sthe|and\sso|but|not|i\.?e\.?|or\sabout|or\sapprox|approx|rounded)\b|\s—\s|\s–\s",
    re.IGNORECASE,
)
_NO_ANSWER = re.compile(
    r"(?:not|wrong|incorrect|correct|right|obvious|clear|unclear|unknown|simple|easy|yours|below|above|as\sfollows|found|given|"
    r"let|let's|first|to\s(?:find|solve|get)|we\s|step|here|since|because|given|start|in\sorder|i\sneed)\b",
    re.IGNORECASE,
)
_HEDGE = re.compile(
    r"(?:that\s+is|about|approximately|approx\.?|around|roughly|exactly|only|just|simply|equal\sto|a\stotal\sof|≈|~|=|\\approx)\s*",
    re.IGNORECASE,
)
_MONTH = re.compile(
    r"\b(?:january|february|march|april|may|june|july|august|september|october|november|december)\b", re.IGNORECASE
)
_CHOICE = re.compile(r"\(([A-J])\)(?=\W|\Z)|([A-J])(?=[).:]\s|\Z)")
_TAG = re.compile(r"<answer>(?P<inside>(?:(?!<answer>).){0,300}?)</answer>", re.IGNORECASE | re.DOTALL)
_DOTTED_GROUPS = re.compile(r"(?<![\d.,])\d{1,3}(?:\.\d{3})+(?![.\d])")
_DECIMAL_COMMA = re.compile(r"(?<![\d.,])(\d{1,9}),(?=\d{1,9}(?![\d,]))")
_LEADING_TO = re.compile(r"\s(?:for|in|of|out\sof|per|with|at|on|from|left)\b", re.IGNORECASE)


def explicit_answer(text: str, *, cut_off: bool = False) -> str | None:
    """What a text says its answer is; None where it does not say.

    Args:
        text: a response, without its reasoning.
        cut_off: whether it ends where the model was stopped; what it was saying there is then not said.
    """
    if (marked := marked_answer(text, cut_off=cut_off)) is not None:
        return marked
    return next((found for said, comma in statements(text, cut_off=cut_off) if (found := told(said, comma))), None)


def marked_answer(text: str, *, cut_off: bool = False) -> str | None:
    """The content of the last box, else of the last ``<answer>``, else what follows the last ``####``."""
    inside = boxed_content(text)
    if inside is not None and inside.strip():
        return without_unit(inside)
    if tagged := _last_tagged(text):
        return told(tagged) or tagged
    at = text.rfind("####")
    if at < 0 or text.startswith("#####", max(at - 1, 0)):
        return None
    line, newline, _ = text[at + 4 : at + _REACH].partition("\n")
    if not re.match(r"\s*[-−–+$€£\\.]*\d", line) or (cut_off and not newline):  # else a heading of the fourth level
        return None
    return told(line)


def statements(text: str, *, cut_off: bool = False) -> Iterator[tuple[str, bool]]:
    """What stands behind "the answer is" and the like, the last first, and whether that language has decimal commas."""
    for at, cue in _cues(text):
        behind = text[at + len(cue) : at + len(cue) + _REACH]
        link = _LINK.match(behind)
        alone = _HEADING.match(behind) if _is_headed(text, at) else None
        found = alone or link
        if found is None:
            if said := _turned_round(text, at):
                yield said, False
            continue
        sentence = _SENTENCE.match(behind, found.end())
        if sentence is None or (cut_off and not (sentence["end"].strip() and sentence.end() < len(behind))):
            if sentence is None or not (cut_off and sentence["end"] == "\n"):
                continue
        if "\n" in found[0] and not _short(sentence["said"]):
            continue
        yield sentence["said"], cue in _COMMA_DECIMAL


def told(said: str, comma_decimal: bool = False) -> str | None:
    """The answer in a statement: its number without the unit and the talk around it, its letter, or its few words."""
    text = _UNCLOSED.sub("", in_plain_marks(said)).replace("**", "").replace("__", "").strip(" \t\n*_`\"'“”:.!")
    if not text or _NO_ANSWER.match(text):
        return None
    if letter := _CHOICE.match(text):
        return letter[1] or letter[2]
    text = _without_talk(text)
    if comma_decimal:
        text = _DOTTED_GROUPS.sub(lambda number: number[0].replace(".", ""), text)
        text = _DECIMAL_COMMA.sub(r"\1.", text)
    if "=" in text and not re.search(r"=.*(?:,|;|\bor\b|\band\b).*=", text):
        text = text.rpartition("=")[2].strip() or text
    if (bare := without_unit(text.strip("$ "))) != text.strip("$ ") or _MONTH.search(text):
        return bare
    quantities = [match for match in QUANTITY.finditer(text)]
    if not quantities:
        return text if len(text.split()) <= _WORDS else None
    first = quantities[0]
    if len(quantities) == 1:
        return first[0] if _reads_as_words(text) else text
    if first.start() <= 1 and _LEADING_TO.match(text[first.end() :].lstrip("abcdefghijklmnopqrstuvwxyz ") or " "):
        return first[0]
    return text if len(text.split()) <= _WORDS else quantities[-1][0]


def _without_talk(text: str) -> str:
    for cut in (_ASIDE, _CLAUSE):
        if (found := cut.search(text)) and text[: found.start()].strip():
            text = text[: found.start()].strip()
    while hedge := _HEDGE.match(text):
        text = text[hedge.end() :]
    if sign := re.match(r"(?:negative|minus)\s+(?=[\d.$])", text, re.IGNORECASE):
        text = f"-{text[sign.end() :]}"
    return text.strip(" ,;:*_`")


def _reads_as_words(text: str) -> bool:
    """Whether the number stands among words ("she has 42 apples") rather than in a formula ("2x + 1", "\\sqrt{2}")."""
    return not re.search(r"\\[a-z]|[\^_|<>]|\d[a-z]\b|[-+*/]\s?[a-z]\b", text, re.IGNORECASE) or bool(
        re.search(r"(?<!\\)\b[^\W\d_]{2,}\s+[^\W\d_]{2,}", text)
    )


def _cues(text: str) -> list[tuple[int, str]]:
    lowered = text.lower()
    if len(lowered) != len(text):  # a letter whose small form is two
        lowered = "".join(small if len(small := sign.lower()) == 1 else sign for sign in text)
    found: list[tuple[int, str]] = []
    for cue in _CUES:
        at = len(lowered)
        for _ in range(_OCCURRENCES):
            at = lowered.rfind(cue, 0, at)
            if at < 0:
                break
            if at == 0 or not lowered[at - 1].isascii() or not lowered[at - 1].isalnum():
                found.append((at, cue))
    return sorted(found, reverse=True)


def _is_headed(text: str, at: int) -> bool:
    """Whether nothing but marks of a heading stands before a cue on its line."""
    start = text.rfind("\n", 0, at) + 1
    return at - start < 60 and _HEADED.fullmatch(text, start, at) is not None


def _short(said: str) -> bool:
    return len(said) <= 40 and len(said.split()) <= 4


def _turned_round(text: str, at: int) -> str | None:
    """What stands before "is the answer"."""
    before = re.search(r"(?:\A|[.!?:;,]\s|\n)([^.!?;,\n]{1,60}?)\s+is\s+(?:the|my)\s+(?:\w+\s+)?\Z", text[max(at - 120, 0) : at])
    return before[1] if before else None


def _last_tagged(text: str) -> str | None:
    at = text.lower().rfind("<answer>") if len(text.lower()) == len(text) else text.rfind("<answer>")
    found = _TAG.match(text, at) if at >= 0 else None
    return found["inside"].strip() if found else None
