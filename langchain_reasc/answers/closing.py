"""Where a response does not say what its answer is: the number it comes down to, past remarks and courtesies."""

import re

from langchain_reasc.answers.marks import in_plain_marks
from langchain_reasc.answers.numbers import last_quantity

__all__ = ["closing_number", "last_number_in"]

_TAIL = 4000
_LINES = 40
_CUT_THROUGH = 100
"""Characters at the beginning of a piece of text in which a number may be the rest of one."""
_REMARK = re.compile(
    r"""[\s*_(>\#-]*(?:
        let\ me\ know|(?:i\ )?hope\ (?:this|that|it)|i\ hope|feel\ free|would\ you\ like|do\ you\ (?:want|have)|
        is\ there\ anything|if\ (?:you|anything)|please\ (?:note|let)|thanks|thank\ you|have\ a\ (?:great|nice|good)|
        best,|cheers|good\ luck|great\ question|does\ (?:that|this)|happy\ to|i'?m\ happy|i\ can\ (?:also\ )?explain|
        keep\ (?:practic|going|it)|
        remember|disclaimer|tips?\b|key\ takeaways|
        (?:note|n\.?b|p\.?s|hint|remark|check|verification|explanation|reference|source|hinweis|nota)\b\s*[:.*]|
        this\ response|-{3,}|={3,}|\Z) | [^\n]{0,300}\?\s*\Z | \s*\([^()]*\)[\s.!]*\Z""",
    re.VERBOSE | re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[^\s\d])")
_COURTESY = re.compile(
    r"\W*(?:let me know|(?:i )?hope (?:this|that|it)|feel free|have a (?:great|nice|good))", re.IGNORECASE
)
_BOLD = re.compile(r"\*\*([^*\n]{1,80})\*\*")
_FORMULA_AT_END = re.compile(r"(?:\$|\\\(|\\\[)([^$\n]{1,200}?)\.?\s?(?:\${1,2}|\\\)|\\\])\Z")
_NOT_A_NUMBER = re.compile(
    r"\\(?:frac|sqrt|pi|infty|log|ln|exp|sin|cos|tan|cot|binom|pm|theta|alpha|cup|cap|in)(?![a-z])"
)
_ASIDE = re.compile(r"\s*\([^()\n]*\)[\s.!]*\Z")
_SUBORDINATE = re.compile(
    r",?\s(?:since|because|while|although|whereas|given|compared)\s|,\s(?:who|where|as|having)\s"
    r"|,\swhich\s(?!is\b|equals|gives|makes|comes|leaves)"
    r"|\s(?:of|in|for|from|with|among)\s(?:the|his|her|their|its|my|your|our|these|those|all)\s(?=\$?\d)"
    r"|\s(?:after|before|without|by)\s\w+ing\s"
    r"|\sto\s(?:reach|make|get|fill|cover|buy|pay|complete|finish|match)\s|\sin\s(?=(?:19|20)\d\d\b)"
)


def closing_number(text: str) -> str | None:
    """The number a response comes down to: bold in its last line, or the last one that stands in no mere remark.

    A formula at the very end, such as ``$2\\sqrt{3}$``, is more than the numbers in it.
    """
    tail = text[-_TAIL:]
    concluded = _concluded(tail)
    if formula := _closing_formula(concluded):
        return formula
    for part in (concluded, tail):
        line = part.rstrip().rpartition("\n")[2]
        bold = [in_plain_marks(one) for one in _BOLD.findall(line)]
        if found := next((number for one in reversed(bold) if (number := last_quantity(one))), None):
            return found
        for piece in (_main_clause(line), part):
            if found := last_quantity(in_plain_marks(piece)):
                return found
    return last_number_in(text)


def last_number_in(text: str) -> str | None:
    """The last number of a text of any length, whatever it belongs to."""
    if not re.search(r"\d|[½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞]", text):
        return None
    size = 600
    while size < len(text):
        if found := last_quantity(in_plain_marks(text[-size:]), since=_CUT_THROUGH):
            return found
        size *= 4
    return last_quantity(in_plain_marks(text))


def _closing_formula(text: str) -> str | None:
    found = _FORMULA_AT_END.search(text[-300:].rstrip(" \n.!*"))
    plain = in_plain_marks(found[1]).rpartition("=")[2].strip() if found else ""
    return plain if _NOT_A_NUMBER.search(plain) else None


def _concluded(text: str) -> str:
    """Without the remarks at its end."""
    lines = text.split("\n")
    courteous = [at for at, line in enumerate(lines) if at and _COURTESY.match(line)]
    if courteous and re.search(r"\d", "\n".join(lines[: courteous[0]])):
        lines = lines[: courteous[0]]
    for _ in range(_LINES):
        if len(lines) < 2 or not _REMARK.match(lines[-1]):
            break
        lines.pop()
    said = _SENTENCE_END.split(lines[-1])
    while len(said) > 1 and _REMARK.match(said[-1]):
        said.pop()
    return "\n".join([*lines[:-1], " ".join(said)])


def _main_clause(line: str) -> str:
    last = _SENTENCE_END.split(line)[-1]
    for cut in (_ASIDE, _SUBORDINATE):
        if found := cut.search(last):
            last = last[: found.start()]
    return last
