"""Find the answer in a text, by rules that are tried in order.

1. :func:`marked_answer`: the last box, ``<answer>``, field ``"answer"``, or ``####``.
2. :func:`statements`: the text after "the answer is" in many languages; :func:`stated_answer` finds the answer in it.
3. :func:`closing_number`: otherwise the last number, before closing remarks and courtesies.

The first two are explicit (:func:`explicit_answer`), so they also count in a text that was cut off. For multiple
choice, :class:`ChoiceFinder` looks for a letter.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TypeVar

from langchain_reasc.answers.json_values import field_of_last_object
from langchain_reasc.answers.spelling import QUANTITY, last_quantity, plain_text, without_unit

_T = TypeVar("_T")
_REACH = 300
"""Characters after a cue that must contain the whole answer."""


def explicit_answer(text: str, *, cut_off: bool = False) -> str | None:
    """Return the answer that a text states explicitly, or None.

    Args:
        text: a response, without its reasoning.
        cut_off: whether the model was stopped. An unfinished last statement then does not count.
    """
    if (marked := marked_answer(text, cut_off=cut_off)) is not None:
        return marked
    for statement, comma_decimal in statements(text, cut_off=cut_off):
        if answer := stated_answer(statement, comma_decimal=comma_decimal):
            return answer
    return None


# Marks

_LONGEST_BOX = 2000
_BOX = re.compile(r"\\(?:boxed|fbox)")
_BARE_IN_BOX = re.compile(r"-?\d+(?:\.\d+)?|[A-Za-z](?![A-Za-z])")
_TAG = re.compile(r"<answer>(?P<inside>(?:(?!<answer>).){0,300}?)</answer>", re.IGNORECASE | re.DOTALL)
_NUMBER_FIRST = re.compile(r"\s*[-−–+$€£\\.]*\d")


def marked_answer(text: str, *, cut_off: bool = False) -> str | None:
    """Return the content of the last box, else of the last ``<answer>`` or field ``answer``, else after ``####``."""
    inside = boxed_content(text, cut_off=cut_off)
    if inside is not None and inside.strip():
        return without_unit(inside)
    if "<" in text and (tagged := _last_tagged(text)):
        return stated_answer(tagged) or tagged
    if field := field_of_last_object(text, "answer", cut_off=cut_off):
        return field
    return _behind_hashes(text, cut_off) if "####" in text else None


def _behind_hashes(text: str, cut_off: bool) -> str | None:
    at = text.rfind("####")
    if text.startswith("#####", max(at - 1, 0)):
        return None
    line, newline, _ = text[at + 4 : at + _REACH].partition("\n")
    is_heading = not _NUMBER_FIRST.match(line)  # of the fourth level
    return None if is_heading or (cut_off and not newline) else stated_answer(line)


def boxed_content(text: str, *, cut_off: bool = False) -> str | None:
    """Return the content of the last ``\\boxed{...}`` with balanced braces, or None.

    A box without braces (``\\boxed 7``) has no visible end, so it does not count in a text that was cut off.
    """
    opening = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    if opening < 0 or not (command := _BOX.match(text, opening)):
        return None
    rest = text[command.end() : command.end() + _LONGEST_BOX].lstrip(" ")
    if not rest.startswith("{"):
        bare = None if cut_off else _BARE_IN_BOX.match(rest)
        return bare[0] if bare else None
    depth = 0
    for brace in re.finditer(r"\\[{}]|[{}]", rest):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return rest[1 : brace.start()]
    return None


def _last_tagged(text: str) -> str | None:
    at = _lowered(text).rfind("<answer>")
    found = _TAG.match(text, at) if at >= 0 else None
    return found["inside"].strip() if found else None


# Statements

_OCCURRENCES = 20
"""The most places of a cue that are tried, from the end of the text."""
_CUES = ("answer", "ans.", "ans:", "答案", "答え", "정답", "الإجابة", "الجواب", "उत्तर", "đáp án")
_CUES_OF_DECIMAL_COMMAS = (
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


def statements(text: str, *, cut_off: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield the statements after "the answer is" and similar cues, last first, and whether commas are decimal."""
    for at, cue in _cues(text):
        behind = text[at + len(cue) : at + len(cue) + _REACH]
        heading = _HEADING.match(behind) if _is_heading(text, at) else None
        if link := heading or _LINK.match(behind):
            statement, comma_decimal = _rest_of_sentence(link, cut_off), cue in _CUES_OF_DECIMAL_COMMAS
        else:
            statement, comma_decimal = _subject_before(text, at), False
        if statement is not None:
            yield statement, comma_decimal


def _subject_before(text: str, at: int) -> str | None:
    """Return the subject before a cue, as in "28 is the answer", but not "what is the answer"."""
    before = _TURNED_ROUND.search(text[max(at - 120, 0) : at])
    return before[1] if before and re.search(r"\d|\b[A-J]\b", before[1]) else None


def _cues(text: str) -> list[tuple[int, str]]:
    """Return the places of cues that begin a word, last first."""
    lowered = _lowered(text)
    found: list[tuple[int, str]] = []
    for cue in (*_CUES, *_CUES_OF_DECIMAL_COMMAS):
        at = len(lowered)
        for _ in range(_OCCURRENCES):
            at = lowered.rfind(cue, 0, at)
            if at < 0:
                break
            if at == 0 or not lowered[at - 1].isascii() or not lowered[at - 1].isalnum():
                found.append((at, cue))
    return sorted(found, reverse=True)


def _lowered(text: str) -> str:
    """Return the text in lower case with every character at its old index."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(small if len(small := sign.lower()) == 1 else sign for sign in text)


def _is_heading(text: str, at: int) -> bool:
    """Return whether a cue's line has only heading marks before the cue."""
    start = text.rfind("\n", 0, at) + 1
    return at - start < 60 and _BEFORE_HEADING.fullmatch(text, start, at) is not None


def _rest_of_sentence(link: re.Match[str], cut_off: bool) -> str | None:
    """Return the rest of a sentence after its verb, or None for a question or a sentence that was cut off.

    If it begins on the line after the cue, it must be short: "Answer:" may be the heading of a long solution or list.
    """
    sentence = _SENTENCE.match(link.string, link.end())
    if sentence is None or (end := sentence["end"]).startswith("?"):
        return None
    ended = end == "\n" or (end != "" and sentence.end() < len(link.string))
    statement = sentence["said"]
    if "\n" in link[0]:
        statement = statement.removeprefix("- ") if len(statement) <= 40 and len(statement.split()) <= 4 else None
    return statement if ended or not cut_off else None


# The answer in a statement

_WORDS = 6
"""The most words of a statement that is an answer without a number ("The answer is New York")."""
_FRAME = " \t\n*_`\"'“”:.!"
_LETTER = re.compile(r"\(([A-J])\)(?=\W|\Z)|([A-J])(?=[).:]\s|\Z)")
_UNCLOSED = re.compile(r"\s\([^()]*\Z")  # an aside that the sentence's end cut through: (see p. 3)
_TALK = (
    re.compile(r"\s\([^()]*\)[\s.!*]*\Z"),
    re.compile(
        r"(?i)\s*[,;:–—-]?\s(?:because|since|which\s(?!is\b|equals|gives|makes|comes|leaves)|who|whose|where|while|although|"
        r"though|given|compared|whereas|after\s|as\s|if\s|for\s\d)"
        r"|[,;]\s(?:so|and\sthe|and\sso|but|not|i\.?e\.?|or\sabout|or\sapprox|approx|rounded)\b|\sand\snot\s|\s—\s|\s–\s"
    ),
)
"""Ends an answer: an aside, or a further clause."""
_HEDGE = re.compile(
    r"(?i)(?:that\s+is|about|approximately|approx\.?|around|roughly|exactly|only|just|simply|equal\sto|a\stotal\sof|"
    r"≈|~|=|\\approx)\s*"
)
_BELOW_ZERO = re.compile(r"(?i)\A(?:negative|minus|-)\s+(?=[\d.$])")
_NO_ANSWER = re.compile(
    r"(?i)(?:not|wrong|incorrect|correct|right|obvious|clear|unclear|unknown|simple|easy|yours|below|above|as\sfollows|"
    r"found|given|let|let's|first|to\s(?:find|solve|get)|we\s|step|here|since|because|start|in\sorder|i\sneed)\b"
)
_NO_ANSWER_IN_WORDS = re.compile(
    r"(?i)(?:(?:the|an?)\s(?:sum|product|number|total|difference|result|value|amount|same|following|one|prime|positive|"
    r"negative|fraction|integer|whole|decimal)|based|derived|calculated|obtained|shown|what|how|it|this|that|there|"
    r"in\s(?:the|a)|by|also|still|always|likely)\b"
)
_SEVERAL_EQUATIONS = re.compile(r"=.*(?:,|;|\bor\b|\band\b).*=")
_MONTHS = "january february march april may june july august september october november december"
_MONTH = re.compile(rf"(?i)\b(?:{_MONTHS.replace(' ', '|')})\b")
_FORMULA = re.compile(r"(?i)\\[a-z]|[\^_|<>]|\d[a-z]\b|[-+*/]\s?[a-z]\b")
_TWO_WORDS = re.compile(r"(?<!\\)\b[^\W\d_]{2,}\s+[^\W\d_]{2,}")
_LED_BY = re.compile(r"(?i)[a-z ]*\s(?:for|in|of|per|with|at|on|from|left)\b")
_DOTTED_GROUPS = re.compile(r"(?<![\d.,])\d{1,3}(?:\.\d{3})+(?![.\d])")
_DECIMAL_COMMA = re.compile(r"(?<![\d.,])(\d{1,9}),(?=\d{1,9}(?![\d,]))")


def stated_answer(statement: str, *, comma_decimal: bool = False) -> str | None:
    """Return the answer in a statement: 42 in "about 42 apples (see step 3), because ...".

    That is the number without its unit and surrounding words, or the letter, or a few words; None if the statement says
    no answer ("The answer is found as follows"). ``comma_decimal``: the language writes 3,5 for three and a half.
    """
    text = _UNCLOSED.sub("", plain_text(statement)).replace("**", "").replace("__", "").strip(_FRAME)
    if not text or _NO_ANSWER.match(text):
        return None
    if letter := _LETTER.match(text):
        return letter[1] or letter[2]
    text = _without_talk(text)
    if comma_decimal:
        text = _DECIMAL_COMMA.sub(r"\1.", _DOTTED_GROUPS.sub(lambda number: number[0].replace(".", ""), text))
    text = _right_side(text).strip("$ ")
    bare = without_unit(text)
    return bare if bare != text or _MONTH.search(text) else _among_words(text)


def _right_side(text: str) -> str:
    """Return the right side of a single equation, or else the text unchanged."""
    return text if _SEVERAL_EQUATIONS.search(text) else text.rpartition("=")[2].strip() or text


def _without_talk(text: str) -> str:
    for talk in _TALK:
        if (found := talk.search(text)) and (before := text[: found.start()].strip()):
            text = before
    while hedge := _HEDGE.match(text):
        text = text[hedge.end() :]
    return _BELOW_ZERO.sub("-", text).strip(" ,;:*_`")


def _among_words(text: str) -> str | None:
    """Return the quantity in a statement with words, or the whole statement if it is short or a formula."""
    quantities = list(QUANTITY.finditer(text))
    few_words = len(text.split()) <= _WORDS
    if not quantities:
        return text if few_words and not _NO_ANSWER_IN_WORDS.match(text) else None
    first = quantities[0]
    if len(quantities) == 1:
        is_formula = _FORMULA.search(text) and not _TWO_WORDS.search(text)
        return text if is_formula else first[0]
    if first.start() <= 1 and _LED_BY.match(text, first.end()):  # $35 for 7 notebooks
        return first[0]
    return text if few_words else quantities[-1][0]


# The number at the end

_TAIL = 4000
_LINES = 40
_CUT_THROUGH = 100
"""Characters at the beginning of a cut piece of text that may contain the rest of a longer number."""
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
_COURTESY = re.compile(r"(?i)\W*(?:let me know|(?:i )?hope (?:this|that|it)|feel free|have a (?:great|nice|good))")
_BOLD = re.compile(r"\*\*([^*\n]{1,80})\*\*")
_FORMULA_AT_END = re.compile(r"(?:\$|\\\(|\\\[)([^$\n]{1,200}?)\.?\s?(?:\${1,2}|\\\)|\\\])\Z")
_NOT_A_NUMBER = re.compile(
    r"\\(?:frac|sqrt|pi|infty|log|ln|exp|sin|cos|tan|cot|binom|pm|theta|alpha|cup|cap|in)(?![a-z])"
)
_SUBORDINATE = (
    re.compile(r"\s*\([^()\n]*\)[\s.!]*\Z"),
    re.compile(
        r",?\s(?:since|because|while|although|whereas|given|compared)\s|,\s(?:who|where|as|having)\s"
        r"|,\swhich\s(?!is\b|equals|gives|makes|comes|leaves)"
        r"|\s(?:of|in|for|from|with|among)\s(?:the|his|her|their|its|my|your|our|these|those|all)\s(?=\$?\d)"
        r"|\s(?:after|before|without|by)\s\w+ing\s"
        r"|\sto\s(?:reach|make|get|fill|cover|buy|pay|complete|finish|match)\s|\sin\s(?=(?:19|20)\d\d\b)"
    ),
)
"""Ends the main clause of a sentence: an aside, or a subordinate clause."""
_ANY_NUMBER = re.compile(r"\d|[½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞]")


def closing_number(text: str) -> str | None:
    """Return the number in bold in the last line, or else the last number that is not in a closing remark.

    If the text ends with a formula such as ``$2\\sqrt{3}$``, return the formula instead of its numbers.
    """
    tail = text[-_TAIL:]
    concluded = _without_remarks(tail)
    if formula := _FORMULA_AT_END.search(concluded[-300:].rstrip(" \n.!*")):
        plain = plain_text(formula[1]).rpartition("=")[2].strip()
        if _NOT_A_NUMBER.search(plain):
            return plain
    for part in (concluded, tail):
        line = part.rstrip().rpartition("\n")[2]
        clause = _SENTENCE_END.split(line)[-1]
        for subordinate in _SUBORDINATE:
            if found := subordinate.search(clause):
                clause = clause[: found.start()]
        pieces = (*reversed(_BOLD.findall(line)), clause, part)
        if number := _first(last_quantity(plain_text(piece)) for piece in pieces):
            return number
    return last_number_in(text)


def last_number_in(text: str) -> str | None:
    """Return the last number of a text of any length."""
    if not _ANY_NUMBER.search(text):
        return None
    size = 600
    while size < len(text):
        if found := last_quantity(plain_text(text[-size:]), since=_CUT_THROUGH):
            return found
        size *= 4
    return last_quantity(plain_text(text))


def _without_remarks(text: str) -> str:
    lines = text.split("\n")
    courteous = next((at for at, line in enumerate(lines) if at and _COURTESY.match(line)), None)
    if courteous and re.search(r"\d", "\n".join(lines[:courteous])):
        lines = lines[:courteous]
    *lines, last = _without_last_remarks(lines, at_most=_LINES)
    return "\n".join([*lines, " ".join(_without_last_remarks(_SENTENCE_END.split(last)))])


def _without_last_remarks(pieces: list[str], *, at_most: int = _TAIL) -> list[str]:
    """Drop closing remarks from lines or sentences, but never the first one."""
    end = len(pieces)
    while end > 1 and len(pieces) - end < at_most and _REMARK.match(pieces[end - 1]):
        end -= 1
    return pieces[:end]


# Multiple choice

_CHOICE_MARKUP = re.compile(r"[*`$]|__")
_WRONG = r"""(?!\W{0,3}\s*(?:is|are|was|were|cannot|can't|isn't)\b\s*
    (?:also\ |too\ |clearly\ )?(?:wrong|incorrect|false|not|out|impossible|be|invalid))"""
_NO_ARTICLE = r"(?![\w'’]|\s+(?!(?:because|since|as|for|is|and|or|but|not|although|which)\b)[a-z])"
"""After a letter that is alone: "C because", but not "A dog" or "I think"."""
_RIGHT = r"""(?:
      (?:is|seems|looks|must\ be)\s+(?:the\s+|clearly\s+|therefore\s+)*(?:right|correct|best|true|answer|only|one)
    | remains|fits|works|matches|satisfies|makes\ (?:the\ most\ )?sense)\b"""
_CHOSEN = r"""\b(?i:
      it\ is|it's|(?:it\ )?(?:must|should|would)\ be|i\ (?:would\ |will\ )?(?:choose|pick|select)|choose
    | go(?:ing)?\ with
    | leaves(?:\ us\ with)?|fits\ is|(?:choice|option|letter|answer)(?:\ (?:is|that\ fits\ is|would\ be))?
    | i'd\ (?:say|choose|pick)|therefore|hence|thus|ergo|so|clearly|obviously
    )(?:\s|[:,–—-])+(?:(?i:option|choice|answer)\s+)?"""


class ChoiceFinder:
    """Finds the letter that is stated as the answer, called right, chosen, or alone on a line.

    Args:
        letters: the possible choices.
    """

    def __init__(self, letters: str = "ABCDEFGHIJ") -> None:
        one = f"[{re.escape(letters)}]"
        small = rf"((?i:{one}))(?=[\s).:\]]*\Z)"  # elsewhere a small "a" is an article
        either = rf"(?:[(\[]({one})[)\]]|({one})(?![\w'’]))"
        statement = rf"(?:[(\[]({one})[)\]]|({one}){_NO_ARTICLE}|{small})"

        def compiled(pattern: str, flags: int = re.VERBOSE) -> re.Pattern[str]:
            return re.compile(pattern, flags)

        self._stated = compiled(rf"\W*(?:(?i:option|choice|letter)\s+)?{statement}")
        self._field = compiled(rf'"(?:answer|choice|option|letter)"\s*:\s*"[(\[]?({one})\b')
        self._called = (
            compiled(rf"{either}\W{{0,3}}\s*{_RIGHT}"),
            compiled(rf"{_CHOSEN}{statement}{_WRONG}"),
            compiled(rf"\bis\s+\(?({one})\)?[^\w\n]*$", re.MULTILINE),
        )
        self._leading = compiled(rf"\W*(?:{either}|{small})(?=[).:\]]*(?:\s+\S|\W*\Z))")
        self._alone = compiled(rf"^[^\w\n]{{0,20}}({one})[^\w\n]{{0,20}}$", re.MULTILINE)
        self._bracketed = compiled(rf"\(({one})\){_WRONG}")

    def __call__(self, text: str, *, cut_off: bool = False) -> str | None:
        """Return the letter, or None.

        Args:
            text: a response, without its reasoning.
            cut_off: whether it was cut off. Then only an explicit statement counts, or a text that is only a letter
                (the model may be limited to one token).
        """
        marked = marked_answer(text, cut_off=cut_off)
        if marked is not None and (letter := self._letter_of(marked)):
            return letter
        if field := last_of(self._field.finditer(text)):
            return field[1]
        if letter := _first(self._letter_of(statement) for statement, _ in statements(text, cut_off=cut_off)):
            return letter
        if cut_off:
            return _letter(self._alone.fullmatch(text.strip()))
        return self._implied(_CHOICE_MARKUP.sub("", plain_text(text[-_TAIL:])))

    def _implied(self, text: str) -> str | None:
        called = [found for pattern in self._called if (found := last_of(pattern.finditer(text)))]
        if called:
            return _letter(max(called, key=re.Match.start))
        line = text.rstrip().rpartition("\n")[2]
        for end in (line, re.split(r"(?<=[.!?])\s+", line)[-1]):
            if (leading := self._leading.match(end)) and not re.match(r"\W*[AI]\s+[a-z]", end):
                return _letter(leading)
        return _letter(last_of(self._alone.finditer(text)) or last_of(self._bracketed.finditer(text)))

    def _letter_of(self, statement: str) -> str | None:
        return _letter(self._stated.match(_CHOICE_MARKUP.sub("", plain_text(statement)).strip(" .:_\"'")))


def _letter(match: re.Match[str] | None) -> str | None:
    return next(filter(None, match.groups())) if match else None


def _first(found: Iterable[str | None]) -> str | None:
    """Return the first match, or None."""
    return next(filter(None, found), None)


def last_of(found: Iterator[_T]) -> _T | None:
    """Return the last match, or None."""
    return next(iter(deque(found, maxlen=1)), None)
