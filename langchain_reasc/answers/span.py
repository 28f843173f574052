"""Find the span of a text that is its answer.

1. What the text marks or states: a box, ``<answer>``, ``####``, a field, a heading, "the answer is ...". The last one
   counts, before a second question that the model goes on with.
2. A final paragraph that is short, or has one bold piece, is later than any statement above it.
3. Otherwise the last number of the conclusion, with all that belongs to it.

A text that breaks off, asks back, or says in the first person that it cannot answer has no span, unless it marks one.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from langchain_reasc.answers import languages
from langchain_reasc.answers.forms import EMOJI, form_of, is_code, is_sql, list_parts, words_pattern
from langchain_reasc.answers.json_values import field_of_last_object
from langchain_reasc.answers.notation import plain_text, without_markup
from langchain_reasc.answers.sentences import answering_part, reasons, without_closing_words

_REACH: Final = 600
"""Characters after a cue that must contain the whole answer."""
_SHORT: Final = 10
"""The most words of a line that is an answer as a whole."""
_TAIL: Final = 6000
"""Characters at the end of a text in which a conclusion is looked for."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A span that a text marks or states.

    Attributes:
        start: where the statement begins in the text.
        span: the span.
        is_whole: whether nothing in it is left to leave out: the content of a box.
    """

    start: int
    span: str
    is_whole: bool = False


def find_span(text: str, question: str = "", *, cut_off: bool = False) -> str | None:
    """Return the span of a text that is its answer, or None.

    Args:
        text: a response, without its reasoning.
        question: the question, whose words are left out of a sentence that repeats them.
        cut_off: whether the response was cut off. Then only what it marks or states counts.
    """
    text = EMOJI.sub("", before_next_question(text))
    text = _after_correction(text)
    statement = last_statement(text, question, cut_off=cut_off)
    if cut_off:
        return statement.span if statement else None
    if statement is None and "\\boxed{" in text:  # a box that was never closed
        return None
    conclusion = _conclusion(text, question)
    if statement and not (conclusion and conclusion.start > statement.start and conclusion.is_whole):
        return statement.span
    return conclusion.span if conclusion else None


# A second question

_NEXT_QUESTION: Final = re.compile(
    r"\n\s*(?:\**(?:question|problem|q|exercise|frage|pregunta|domanda|pergunta|вопрос|問題|问题|질문|user|human)"
    r"\s?\d{0,3}\s?[:.)]|#+\s(?:question|problem|instruction)\b|<\|im_(?:start|end)\|>|\[INST\])",
    re.IGNORECASE,
)


def before_next_question(text: str) -> str:
    """Return a text up to a second question that the model goes on with."""
    match = _NEXT_QUESTION.search(text)
    return text[: match.start()] if match and text[: match.start()].strip() else text


# A correction

_SHOULD_BE: Final = re.compile(r"\b(?:it|that|this|which)\s(?:should\s(?:be|have\sbeen)|must\sbe|is\sactually)\s", re.IGNORECASE)


def _after_correction(text: str) -> str:
    """Return what follows the last correction, as the model takes back what it said before."""
    cut = None
    for match in _corrections().finditer(text, max(0, len(text) - _TAIL)):
        if match.start() and text[match.end() :].strip(" .:,!—-\n"):
            cut = match
    if cut is None:
        return text
    rest = text[cut.end() :].lstrip(" .:,!—-\n")
    for should_be in _SHOULD_BE.finditer(rest):
        rest = f"The answer is {rest[should_be.end() :]}"
        break
    return rest


@cache
def _corrections() -> re.Pattern[str]:
    words = words_pattern(("sorry, i meant", *languages.words("correction"))).pattern
    return re.compile(rf"(?:(?<=[.!?。]\s)|(?<=\n)|(?<=,\s))(?:{words})", re.IGNORECASE)


# Statements

_BOX: Final = re.compile(r"\\(?:boxed|fbox)\s?")
_BARE_IN_BOX: Final = re.compile(r"-?\d+(?:\.\d+)?|[A-Za-z](?![A-Za-z])")
_LONGEST_BOX: Final = 2000
_BETWEEN_BOXES: Final = re.compile(r"[$\s]*(?:,|;|and|or|\\text\{ ?(?:and|or) ?\})*[\s$]*")
_TAG: Final = re.compile(r"<answer>(?P<inside>(?:(?!<answer>).){0,600}?)</answer>", re.IGNORECASE | re.DOTALL)
_HASHES: Final = re.compile(r"^####[ \t]*(?P<inside>[^#\n][^\n]{0,300})(?P<newline>\n?)", re.MULTILINE)
_NUMBER_FIRST: Final = re.compile(r"[\s*$€£¥\\({\[-]*[-−–+]?[\d.½¼¾]")
_FIELDS: Final = ("answer", "final_answer")
_MOST_CUES: Final = 20


def last_statement(text: str, question: str = "", *, cut_off: bool = False) -> Statement | None:
    """Return the last span that a text marks or states, or None."""
    marked = [_last_box(text, cut_off), _last_tag(text), _behind_hashes(text, cut_off), _field(text, cut_off)]
    found = [statement for statement in marked if statement]
    stated = next(_stated(text, question, cut_off), None)
    if stated:
        found.append(stated)
    return max(found, key=lambda statement: statement.start, default=None)


def _last_box(text: str, cut_off: bool) -> Statement | None:
    """Return the content of the last box, or of several that are joined by commas, "and" or "or"."""
    last = _box_at(text, max(text.rfind("\\boxed"), text.rfind("\\fbox")), cut_off)
    if last is None:
        return None
    start, _, inside = last
    parts = [inside]
    while (before := max(text.rfind("\\boxed", 0, start), text.rfind("\\fbox", 0, start))) >= 0:
        box = _box_at(text, before, cut_off)
        if box is None or box[1] > start:
            break
        between = text[box[1] : start]
        if not between.strip(" $") or len(between) > 20 or not _BETWEEN_BOXES.fullmatch(between):
            break
        parts.insert(0, " or " if "or" in between else ", ")
        parts.insert(0, box[2])
        start = before
    span = "".join(parts)
    return Statement(start, span, is_whole=True) if span.strip() else None


def _box_at(text: str, opening: int, cut_off: bool) -> tuple[int, int, str] | None:
    """Return start, end and content of a box with balanced braces.

    A box without braces has no visible end, so it does not count in a text that was cut off.
    """
    command = _BOX.match(text, opening) if opening >= 0 else None
    if command is None:
        return None
    inside = command.end()
    if text[inside : inside + 1] != "{":
        bare = None if cut_off else _BARE_IN_BOX.match(text, inside)
        return (opening, bare.end(), bare[0]) if bare else None
    depth = 0
    for brace in re.finditer(r"\\[{}]|[{}]", text[inside : inside + _LONGEST_BOX]):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return opening, inside + brace.end(), text[inside + 1 : inside + brace.start()]
    return None


def boxed_content(text: str, *, cut_off: bool = False) -> str | None:
    """Return the content of the last ``\\boxed{...}``, or of several that are joined, or None."""
    box = _last_box(text, cut_off)
    return box.span if box else None


def _last_tag(text: str) -> Statement | None:
    if "<" not in text:
        return None
    start = lowered(text).rfind("<answer>")
    match = _TAG.match(text, start) if start >= 0 else None
    return Statement(start, match["inside"].strip()) if match and match["inside"].strip() else None


def _behind_hashes(text: str, cut_off: bool) -> Statement | None:
    last = None
    for match in _HASHES.finditer(text):
        if _NUMBER_FIRST.match(match["inside"]) and not (cut_off and not match["newline"]):
            last = match
    return Statement(last.start(), without_remarks_behind(last["inside"])) if last else None


def _field(text: str, cut_off: bool) -> Statement | None:
    for name in _FIELDS:
        if value := field_of_last_object(text, name, cut_off=cut_off):
            return Statement(text.rfind(f'"{name}"'), value, is_whole=True)
    return None


# "The answer is ..."

_MARKUP: Final = r"[\s*_`>]"
_HEADING: Final = re.compile(rf"(?:{_MARKUP}|:)*\n\s*")
_IS_HEADING: Final = re.compile(r"[\s#*_>\W]*(?:(?:the|final|correct|my|your|short)\s+)*", re.IGNORECASE)
_TURNED_ROUND: Final = re.compile(r"(?:\A|[.!?:;,]\s|\n)(?:so |hence |thus )?([^.!?;,\n]{1,60}?)\s+is\s+(?:the|my)\s+(?:\w+\s+)?\Z")
_ASKED: Final = re.compile(r"\b(?:what|which|who|that|it|this|here|not)\b", re.IGNORECASE)
_PROCESS: Final = re.compile(
    r"(?:to (?:find|solve|get|calculate|determine|answer|compute)|we |let |let's|first|in order|step|here|based|obtained|"
    r"found|given|as follows|not (?:sure|clear|given)|unclear|below|above|correct\b|wrong|incorrect|right\b(?= if| when)|"
    r"obvious|simple|easy|yours|since|because|start|i need|derived|calculated|shown|what |how )",
    re.IGNORECASE,
)


def _stated(text: str, question: str, cut_off: bool) -> Iterator[Statement]:
    """Yield the statements after "the answer is" and similar cues, last first."""
    for cue in _cues(text):
        behind = text[cue.end() : cue.end() + _REACH]
        link = _link().match(behind)
        heading = _HEADING.match(behind)
        if heading and _IS_HEADING.fullmatch(text, text.rfind("\n", 0, cue.start()) + 1, cue.start()):
            statement = _below_heading(behind[heading.end() :], cut_off)
        elif link:
            statement = _rest_of_sentence(behind, link, cut_off)
        elif _inverted().search(text, max(0, cue.start() - 60), cue.start()) and behind[:1] == " ":
            statement = _rest_of_sentence(behind, None, cut_off)
        else:
            statement = _subject_before(text, cue.start())
        if statement is None:
            continue
        span = _reduced(statement, question)
        if span and not _PROCESS.match(span):
            yield Statement(cue.start(), _with_points(span, cue[0].casefold()))


def _cues(text: str) -> list[re.Match[str]]:
    """Return the words that name an answer, last first."""
    cues = list(_cue_pattern().finditer(text, max(0, len(text) - _TAIL)))
    if not cues:
        cues = list(_cue_pattern().finditer(text[:100_000]))
    cues = [cue for cue in cues if not (cue.start() and text[cue.start() - 1].isalnum() and cue[0].isascii())]
    return cues[: -_MOST_CUES - 1 : -1]


@cache
def _cue_pattern() -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, languages.words("answer"))), re.IGNORECASE)


@cache
def _link() -> re.Pattern[str]:
    copulas = languages.words("copula")
    spaced = "|".join(re.escape(word) for word in copulas if word.isascii() or not _is_unspaced(word))
    unspaced = "|".join(re.escape(word) for word in copulas if _is_unspaced(word))
    nouns = "|".join(map(re.escape, (*languages.words("choice"), *languages.words("correct"))))
    return re.compile(
        rf"""(?:(?:s|et|en)?(?!\w)|(?=[\u3040-\u9fff\uac00-\ud7a3]))
        (?:\ (?:to|for|of)\ (?:the|this|your|that)\ [\w'\ ]{{0,40}}?|\ (?:{nouns}|here|therefore))*
        {_MARKUP}*
        (?: (?:seems?\ to\ be|appears?\ to\ be|would\ be|will\ be|must\ be|should\ be|has\ to\ be|{spaced})(?![^\W_])
          | (?:{unspaced}) | [:=：] | [-–—](?=\s) | (?<=[:.])(?=\s))
        (?:[*_`]{{1,3}}(?=[\s:：]|\Z)|[\s:：=>])*""",
        re.VERBOSE | re.IGNORECASE,
    )


def _is_unspaced(word: str) -> bool:
    return "\u3040" <= word[0] <= "\u9fff" or "\uac00" <= word[0] <= "\ud7a3"


@cache
def _inverted() -> re.Pattern[str]:
    copulas = "|".join(re.escape(word) for word in languages.words("copula") if len(word) > 2)
    return re.compile(rf"\b(?:{copulas})\s(?:\w{{1,4}}\s)?(?:\w+\s)?\Z", re.IGNORECASE)


def _below_heading(text: str, cut_off: bool) -> str | None:
    """Return the paragraph below a heading, if it is short, a list or code."""
    block = re.split(r"\n\s*\n", text, maxsplit=1)
    paragraph = block[0].strip()
    if paragraph.startswith("```") and len(block) > 1 and paragraph.count("```") < 2:
        paragraph = text.strip()
        paragraph = paragraph[: paragraph.find("```", 3) + 3]
    if cut_off and len(block) < 2 and not text.endswith("\n"):
        return None
    if _is_block(paragraph):
        return paragraph
    first_line = paragraph.split("\n", 1)[0]
    return first_line if len(first_line.split()) <= _SHORT else None


def _rest_of_sentence(behind: str, link: re.Match[str] | None, cut_off: bool) -> str | None:
    """Return the rest of a sentence after its verb, or None for a question or a sentence that was cut off."""
    rest = behind[link.end() :] if link else behind
    if link and "\n" in link[0]:
        return _below_heading(rest, cut_off)
    end, mark = sentence_end(rest)
    if mark.startswith(("?", "？")):
        return None
    is_ended = mark == "\n" or (mark != "" and end + len(mark) < len(rest))
    if cut_off and not is_ended:
        return None
    if mark == "\n" and _is_opening_line(rest[:end]):
        return None
    return rest[:end]


def _is_opening_line(line: str) -> bool:
    return line.rstrip().endswith((":", "："))


def _subject_before(text: str, cue: int) -> str | None:
    """Return the subject before a cue, as in "28 is the answer", but not "what is the answer"."""
    before = _TURNED_ROUND.search(text[max(cue - 120, 0) : cue])
    return before[1] if before and not _ASKED.match(before[1]) else None


def _with_points(span: str, cue: str) -> str:
    """Write the decimal commas of a language that has them as points."""
    if cue not in _cues_of_decimal_commas() or not re.search(r"\d,\d|\d\.\d{3}(?!\d)", span):
        return span
    span = re.sub(r"(?<![\d.,])\d{1,3}(?:\.\d{3})+(?![.\d])", lambda number: number[0].replace(".", ""), span)
    return re.sub(r"(?<![\d.,])(\d{1,9}),(?=\d{1,9}(?![\d,]))", r"\1.", span)


@cache
def _cues_of_decimal_commas() -> frozenset[str]:
    cues = {word for language in languages.LANGUAGES if language.decimal_comma for word in language.answer}
    others = {word for language in languages.LANGUAGES if not language.decimal_comma for word in language.answer}
    return frozenset(cues - others)


# Sentences

_END: Final = re.compile(r"(?P<mark>[.!?][\"')*_`\]$”]*(?=\s|\Z)|[。！？]|\n|(?=</))")
_ABBREVIATION: Final = re.compile(
    r"(?:\b(?:mr|mrs|ms|dr|prof|st|jr|sr|no|vs|etc|approx|ca|e\.g|i\.e|cf|capt|rev|hon|[A-Z])|\b[ap]\.m|\b[A-Z]\.[A-Z])\Z"
)
_QUOTED: Final = re.compile(r"\s*(?:\*\*(?P<bold>[^*\n]+)\*\*|`(?P<code>[^`\n]+)`|\$(?P<math>[^$\n]+)\$)")


def sentence_end(text: str) -> tuple[int, str]:
    """Return where the first sentence of a text ends, and the mark there; the mark is empty at the end of the text."""
    quoted = _QUOTED.match(text)
    start = quoted.end() - 1 if quoted else 0
    for match in _END.finditer(text, start):
        before = text[max(0, match.start() - 12) : match.start()]
        follows = text[match.end() :].lstrip()
        is_abbreviation = match["mark"].startswith(".") and _ABBREVIATION.search(_lower_title(before))
        if match["mark"].startswith(".") and follows[:1].islower():
            continue
        if is_abbreviation and follows and not (before[-2:].lower().endswith(".m") and follows[:1].isupper()):
            continue
        return match.start(), match["mark"]
    return len(text), ""


def _lower_title(text: str) -> str:
    return re.sub(r"\b(?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|No|Capt|Rev|Hon)\Z", lambda title: title[0].lower(), text)


def sentences(text: str) -> list[str]:
    """Cut a paragraph into sentences."""
    found = []
    while text.strip():
        end, mark = sentence_end(text)
        found.append(text[: end + len(mark)].strip())
        text = text[end + max(len(mark), 1) :] if end + len(mark) else text[1:]
    return [sentence for sentence in found if sentence]


# What is not part of an answer

_CITATIONS: Final = re.compile(r"(?<=\S)\s*(?:\[\^?\d{1,3}(?:[,–-]\s?(?:p\.\s?)?\d{1,3})*\]|【[^】]*】)+(?=[\s.,;]|\Z)")
_SOURCE: Final = re.compile(
    r"(?<=\S)\s*[(\[](?:source|sources|see|ref|cf|quelle|siehe|confidence|certainty|probability|i am|i'm|about \d+ ?% sure|"
    r"\d+ ?% (?:sure|confident|certain))\b[^()\[\]]*(?:\[\d+\])?[)\]]",
    re.IGNORECASE,
)
_REMARK: Final = re.compile(
    r"""[\s*_(>\#\[-]*(?:confidence|certainty|probability[^\n:]{0,40}|my\ confidence|reason|reasoning|explanation|rationale|justification|
        note|n\.?b|p\.?s|hint|remark|check|verification|double-check|source|sources|reference|references|hinweis|nota|
        (?:this|that)\ response|disclaimer|summary|tips?|key\ takeaways?|remember)\b\s*(?:score|level|in\ this\ answer)?\s*[:.*=\d]
      | [\s*_(>\#\[-]*(?:confidence|i\ am|i'm)\ [^\n]{0,40}(?:\d+\s?/\s?\d+|%|sure|certain|confident)
      | [\s*_(]*(?:i\ hope|hope\ (?:this|that)|thanks|keep\ (?:practic|going)|please\ note|this\ response\ was)\b
      | \s*\([^()]*\)[\s.!]*\Z
      | [^?\n]{0,80}\b(?:make\ sense|anything\ else|shall\ i|want\ me|would\ you\ like|any\ questions)\b[^?\n]{0,80}\?[^?]*\Z
      | \s*\[\^?\d+\]:?\s\S | \s*[-=_*]{3,}\s*\Z | \s*\Z""",
    re.VERBOSE | re.IGNORECASE,
)
_TALK: Final = re.compile(
    r"\s(?:—|–|-)\s(?=[a-zA-Z])|;\s|,\s(?:which|who|whose|where|while|although|though|whereas|so|and so|not|i\.e\.|or about|since|as|"
    r"because|rounded|meaning|making|located|known|with|but)\s(?=\S)|(?<=\w{3}\s\w{3}):\s(?=[a-z])|\s(?:because|since)\s",
    re.IGNORECASE,
)
_ARITHMETIC: Final = re.compile(r"[\s\d.,$€£%+\-*/×·÷()^]*\d[\s\d.,$€£%+\-*/×·÷()^]*")
_PAUSE: Final = re.compile(r"[,:]\s")
_LOOKS_LIKE_CODE: Final = re.compile(r"[{};]\s*\Z|\w\([^)]*[;=]|[<>=!]=|=>|->")
_STARTS_WITH_VERDICT: Final = re.compile(r"(?:yes|no),\s", re.IGNORECASE)
_RELATIVE: Final = re.compile(r"\b(?:is|was|are|were)\s(?:an?|the)\s[^,]{2,60}?(?P<clause>\sthat\s(?:is|was|are|were|has|had)\s)")
_THAT: Final = re.compile(r"(?:that |equal to |exactly |simply |just |=\s?)+", re.IGNORECASE)


def without_remarks_behind(span: str) -> str:
    """Return a span without citations, sources and statements of confidence behind it."""
    before = ""
    while span != before:
        before = span
        span = _SOURCE.sub("", _CITATIONS.sub("", span)).rstrip()
    return span


def _reduced(statement: str, question: str) -> str:
    """Return the part of a statement that is the answer."""
    text = without_remarks_behind(statement.strip())
    if _is_block(text):
        return text
    if piece := _only_piece(text):
        return _reduced(without_head(piece, question), question)
    text = _without_explanation(text)
    text = without_closing_words(text.strip(" *_"))
    text = _THAT.sub("", text, count=1) if _THAT.match(text) else text
    return _value_within(_first_value(_without_calculation(_part(text, question))), question)


def _part(text: str, question: str) -> str:
    if form_of(text).is_value:
        return text
    return answering_part(text, question)


_ASKS_NUMBER: Final = re.compile(
    r"\bhow\s(?!do\b|does\b|did\b|is\b|are\b|can\b|should\b)\w+|\bwhen\b|\bwhat\s(?:is|are|was)\s(?:the\s)?(?:\w+\s){0,2}(?:total|sum|number|"
    r"price|cost|age|time|year|date|percent|probability|area|volume|length|distance|speed|value|amount|profit|change|average|"
    r"mass|weight|height|temperature|difference|product|perimeter|ratio|rate|share|fraction|result)|\b(?:calculate|compute|find|"
    r"solve|evaluate|determine|percentage)\b|\bwie\s?viel|\bwie\s(?:lang|hoch|alt|weit|schwer|schnell|teuer)|\bwann\b|\bcombien|"
    r"\bquand\b|\bcuánt|\bcuándo|\bquant[oaie]|\bquando\b|\bhoeveel|\bile\b|\bсколько|\bкогда|\bkaç\b|多少|几|何|幾|いくつ|いくら|몇|얼마|كم|कितन|"
    r"\bhur\s(?:många|mycket|lång|stor|gammal)",
    re.IGNORECASE,
)
_HEDGED: Final = re.compile(
    r"\b(?:about|approximately|approx|around|roughly|nearly|almost|least|most|than|over|under|up to|between|not|no)\b\W*\Z|[≈~]\s?\Z",
    re.IGNORECASE,
)
_SUBORDINATE: Final = re.compile(
    r",\s|\s(?:of|in|for|from|with|among|after|before|without|than|by|until|per|given|because|since|while|to)\s", re.IGNORECASE
)


def _value_within(part: str, question: str) -> str:
    """Return the value in a sentence that could not be reduced to it, if the question asks for one, or is not known."""
    is_sentence = len(part.split()) > 2 and form_of(part).kind in ("text", "list") and _sentence_verb().search(part)
    if not is_sentence or QUANTITY.match(part) or (question and not _ASKS_NUMBER.search(question)):
        return part
    for copula in reversed(list(_english_copula().finditer(part))):
        if form_of(part[copula.end() :]).is_value:
            return part[copula.end() :]
    plain = _ASIDE.sub("", plain_text(part))
    plain = plain.rpartition("=")[2] or plain
    first = QUANTITY.search(plain)
    if first is None or _HEDGED.search(plain[: first.start()]):
        return part
    subordinate = _SUBORDINATE.search(plain, first.end())
    main = plain[: subordinate.start()] if subordinate else plain
    return last_quantity(main) or part


_VERBS: Final = (
    "has|have|had|gets?|got|needs?|needed|costs?|pays?|paid|earns?|earned|saves?|saved|makes?|made|takes?|took|lasts?|lasted|"
    "weighs?|weighed|travels?|travelled|runs?|ran|walks?|walked|drives?|drove|reads?|sells?|sold|flies|flew|leaves?|left|arrives?|arrived|"
    "closes?|closed|opens?|opened|starts?|started|ends?|ended|began|requires?|required|contains?|holds?|uses?|used|spends?|spent|"
    "gives?|gave|receives?|received|fills?|filled|comes?|came|totals?|produces?|produced|buys?|bought|owes?|owed|means?|works?|"
    "measures?|freezes?|boils?|rises?|rose|falls?|fell|grows?|grew|drops?|dropped|increases?|increased|decreases?|decreased|"
    "passes|passed|stays?|reaches|reached|beträgt|kostet|macht|dauert|haben|hat"
)


@cache
def _sentence_verb() -> re.Pattern[str]:
    copulas = "|".join(re.escape(word) for word in languages.words("copula") if len(word) > 1 and word.isalpha())
    return re.compile(rf"(?:^|\s)(?:{_VERBS}|will|can|must|should|{copulas})\s", re.IGNORECASE)


@cache
def _english_copula() -> re.Pattern[str]:
    words = "|".join(re.escape(word) for word in languages.words("copula") if len(word) > 1 and word.isalpha())
    return re.compile(rf"\s(?:{words})\s", re.IGNORECASE)


def _without_calculation(text: str) -> str:
    """Return what a calculation comes to: 102 of "17 × 6 = 102"."""
    left, equals, right = text.rpartition("=")
    if not equals or not right.strip() or form_of(text).kind == "code":
        return text
    is_chain = "=" in left and not re.search(r"[,;≤≥<>]|\b(?:and|or)\b", text)
    is_arithmetic = _ARITHMETIC.fullmatch(plain_text(left)) is not None
    return right.strip() if is_chain or is_arithmetic else text


def _first_value(text: str) -> str:
    """Return the value before a comma or colon, if no other value follows: 1986 of "1986, after a long dispute"."""
    if form_of(text).is_value:
        return text
    for match in _PAUSE.finditer(text):
        before, after = text[: match.start()], text[match.end() :]
        form = form_of(before)
        next_part = form_of(list_parts(after)[0])
        if form.kind == "value" and form.key not in ("yes", "no") and " " in after and not next_part.is_value:
            return before
    return text


def _without_explanation(text: str) -> str:
    if form_of(text).is_value or _STARTS_WITH_VERDICT.match(text) or _LOOKS_LIKE_CODE.search(text):
        return text
    relative = _RELATIVE.search(text)
    if relative:
        text = text[: relative.start("clause")]
    for pattern in (reasons(), _TALK):
        match = pattern.search(text, 1)
        if match and text[: match.start()].strip(" ,"):
            text = text[: match.start()].rstrip(" ,;")
    return text


_PIECE: Final = re.compile(r"\*\*(?P<bold>[^*\n]{1,200}?)\*\*|(?<![`\w])`(?P<code>[^`\n]{1,200})`(?!`)|\$\\boxed\{(?P<box>[^$]*)\}\$")


def _only_piece(text: str) -> str | None:
    """Return the one bold or code piece of a text, unless it is a head such as ``**Answer:**``."""
    pieces = [match[match.lastgroup or 0] for match in _PIECE.finditer(text)]
    pieces = [piece for piece in pieces if not piece.rstrip().endswith(":")]
    return pieces[0] if len(pieces) == 1 else None


# The conclusion

_FENCED: Final = re.compile(r"```[\w+-]*[ \t]*\n(?P<code>.*?)\n?\s*```", re.DOTALL)
_LISTED: Final = re.compile(r"\s*(?:[-*•–]|\(?\d{1,2}[.)]|[a-z]\))\s+\S")
_HEAD: Final = re.compile(r"(?P<head>[^\W\d_][\w '()/-]{0,40}?)\s?[:：]\s*(?P<rest>\S.*)", re.DOTALL)
_HEADS: Final = frozenset(
    "answer final answer label result status class category classification sentiment output value solution prediction verdict "
    "move length width height area volume price cost weight distance time date year name speed profit decision conclusion response so hence therefore thus choice option total sorted correct option correct answer".split()
)
_TWO_WORD_HEADS: Final = frozenset({"route it to", "correct option", "the answer", "in short", "in total", "in summary"})
_ENDS_OPEN: Final = re.compile(r"[\w,;:(—–-]\Z")
_ENDS_IN_THE_MIDDLE: Final = re.compile(r"\s(?:in|of|the|a|an|to|by|and|with|for|from|is|are|was|that|or|at|on)\Z", re.IGNORECASE)


def _conclusion(text: str, question: str) -> Statement | None:
    """Return the span that the end of a text concludes with."""
    tail_start = max(0, len(text) - _TAIL)
    paragraphs = _paragraphs(text[tail_start:])
    if not paragraphs:
        return None
    if tail_start == 0 and 1 < len(paragraphs) <= 3:
        every = [sentence for _, paragraph in paragraphs for sentence in sentences(paragraph)]
        if answer := _answered_first(every, question):
            return Statement(0, answer)
    start, paragraph = paragraphs[-1]
    is_alone = len(paragraphs) == 1 and tail_start == 0
    span, is_whole = _concluded(paragraph, question, is_alone=is_alone)
    if span is None:
        return None
    return Statement(tail_start + start, span, is_whole=is_whole)


def _concluded(paragraph: str, question: str, *, is_alone: bool) -> tuple[str | None, bool]:
    """Return the span of the last paragraph, and whether it is an answer as a whole."""
    if _is_list_of_sentences(paragraph):
        paragraph = _LISTED_MARK.sub("", paragraph.rstrip().split("\n")[-1])
    if _is_block(paragraph):
        return paragraph, is_alone or "```" in paragraph
    if _declines(paragraph):
        return None, False
    every = sentences(paragraph)
    if is_alone and (answer := _answered_first(every, question)):
        return answer, True
    if len(paragraph.split()) <= _SHORT and "\n" not in paragraph and not _breaks_off(paragraph):
        headed = without_head(without_remarks_behind(_after_so(paragraph)), question)
        span = _reduced(headed, question)
        is_sentence = len(span.split()) > 3 and span == headed and not is_alone
        return span, not is_sentence
    last = every[-1]
    if piece := _only_piece(paragraph) or _only_piece(last):
        return _reduced(without_head(piece, question), question), True
    if _breaks_off(paragraph):
        return None, False
    first = every[0]
    if is_alone and form_of(first).key in ("yes", "no"):
        return first, True
    if is_alone and len(paragraph.split()) <= 2 * _SHORT and len(every) == 1 and form_of(paragraph).key in ("yes", "no"):
        return paragraph, True
    reduced = _reduced(without_head(_after_so(last), question), question)
    if reduced != last and len(reduced.split()) < _SHORT:
        return reduced, True
    return last_quantity(last), False


_SO: Final = re.compile(r"(?:,|;|\A)\s?(?:and\s)?(?:so|hence|thus|therefore)[\s,]+(?=\S)", re.IGNORECASE)


def _after_so(sentence: str) -> str:
    """Return what a sentence concludes: "one lap is 400 m" in "Eight laps are 3.2 km, so one lap is 400 m."."""
    cuts = list(_SO.finditer(sentence))
    return sentence[cuts[-1].end() :] if cuts else sentence


_ELABORATES: Final = re.compile(r"(?:it|its|they|their|this|these|he|his|she|her|there)\b", re.IGNORECASE)


def _answered_first(every: list[str], question: str) -> str | None:
    """Return the answer in a short first sentence of which the others only say more."""
    first, *others = every
    if not others or len(first.split()) > _SHORT or not all(_ELABORATES.match(other) for other in others):
        return None
    answer = _reduced(first, question)
    is_answer = answer != first.rstrip(" .!") or len(first.split()) <= 3
    return answer if is_answer else None


def _is_block(text: str) -> bool:
    """Return whether a text is a list, code in a fence, or an object, which is an answer as a whole."""
    stripped = text.strip()
    if stripped.startswith("```") or is_code(stripped) or is_sql(stripped):
        return True
    lines = [line for line in stripped.split("\n") if line.strip()]
    if len(lines) > 1 and all(map(_LISTED.match, lines)):
        return True
    return stripped[:1] in "{[" and stripped[-1:] in "}]" and bool(stripped) and form_of(stripped).key != stripped


_LISTED_MARK: Final = re.compile(r"\s*(?:[-*•–]|\(?\d{1,2}[.)]|[a-z]\))\s+")


def _is_list_of_sentences(text: str) -> bool:
    """Return whether a list is a reasoning of several steps, and not an answer of several parts."""
    lines = [line for line in text.split("\n") if line.strip()]
    if len(lines) < 2 or not all(map(_LISTED.match, lines)):
        return False
    return any(len(line.split()) > _SHORT or re.search(r"=|[^\W\d]\*{0,2}:\s|[a-z\d]\.\Z", line) for line in lines)


def _paragraphs(text: str) -> list[tuple[int, str]]:
    """Return the paragraphs, with where they begin, without courtesies and remarks at the beginning and the end."""
    fence = None
    for fence in _FENCED.finditer(text):
        pass
    if fence and _is_talk(text[fence.end() :]):
        before = [(0, text[: fence.start()])] if text[: fence.start()].strip() and not _is_talk(text[: fence.start()]) else []
        return [*before, (fence.start(), fence[0])]
    pieces: list[tuple[int, str]] = []
    for match in re.finditer(r"\S(?:[^\n]|\n(?!\s*\n))*", text):
        pieces.append((match.start(), match[0].rstrip()))
    for at, (_, piece) in enumerate(pieces):
        if at and _FAREWELL.match(piece):
            pieces = pieces[:at]
            break
    pieces = _without_talk(pieces)
    if not pieces:
        return []
    start, last = pieces[-1]
    return [*pieces[:-1], (start, _without_last_lines(last))]


_FAREWELL: Final = re.compile(r"\W*(?:(?:i )?hope (?:this|that|it)|let me know|feel free)", re.IGNORECASE)


def _without_talk(pieces: list[tuple[int, str]]) -> list[tuple[int, str]]:
    end = len(pieces)
    while end > 1 and _is_talk(pieces[end - 1][1]):
        end -= 1
    start = 0
    while start < end - 1 and _is_talk(pieces[start][1]):
        start += 1
    return pieces[start:end]


def _is_talk(text: str) -> bool:
    """Return whether a text consists of courtesies and remarks."""
    text = text.strip()
    return not text or _REMARK.match(text) is not None or _courtesy().match(text) is not None


@cache
def _courtesy() -> re.Pattern[str]:
    return re.compile(rf"\W*(?:{words_pattern(languages.words('courtesy')).pattern})", re.IGNORECASE)


def _without_last_lines(paragraph: str) -> str:
    """Leave out remarks and courtesies that follow in the same paragraph, and a courtesy in front."""
    lines = paragraph.split("\n")
    while len(lines) > 1 and _is_talk(lines[-1]):
        lines.pop()
    every = sentences(lines[-1]) if len(lines) == 1 else []
    while len(every) > 1 and _is_talk(every[-1]):
        every.pop()
    while len(every) > 1 and _is_talk(every[0]):
        every.pop(0)
    return " ".join(every) if every else "\n".join(lines)


def _declines(paragraph: str) -> bool:
    """Return whether a paragraph asks back, or says in the first person that it cannot answer."""
    if paragraph.rstrip().endswith(("?", "？", "؟")):
        return True
    return any(_cannot().match(sentence.replace("’", "'")) for sentence in sentences(paragraph))


@cache
def _cannot() -> re.Pattern[str]:
    return re.compile(rf"\W*(?:{words_pattern(languages.words('cannot')).pattern})", re.IGNORECASE)


def _breaks_off(paragraph: str) -> bool:
    last_line = paragraph.rstrip().split("\n")[-1]
    if len(last_line.split()) > 5 and _ENDS_IN_THE_MIDDLE.search(last_line):
        return True
    return len(last_line.split()) > _SHORT and _ENDS_OPEN.search(last_line) is not None


def without_head(text: str, question: str) -> str:
    """Return a text without a head that names what it is: ``2.4`` in "Version: 2.4" if the question asks for a version."""
    bare = without_markup(text)
    match = _HEAD.fullmatch(bare)
    if match is None:
        return text
    head = match["head"].casefold()
    words = head.split()
    asked = question.casefold()
    is_known = all(word in _HEADS or re.search(rf"\b{re.escape(word[:5])}", asked) for word in words)
    return match["rest"] if is_known or head in _TWO_WORD_HEADS else text


_ASIDE: Final = re.compile(r"\s\([^()]*\)")
QUANTITY: Final = re.compile(
    r"""(?<![\w.^{\\])(?:[-–+]\s?(?=[$€£¥₹\d.]))?(?:[$€£¥₹]\s?|\b(?:USD|EUR|GBP)\s)?[-–]?
        (?: \d{4}-\d\d-\d\d | \d{1,2}:\d\d(?::\d\d)?(?:\s?[ap]\.?m\b\.?)? | \d+\s?:\s?\d+
          | \d+\s\d+/\d+ | \d{1,3}(?:[ '’]\d{3})+(?!\d)(?:[.,]\d+)? | (?:\d[\d,.]*\d|\d|\.\d+)(?:[eE][-+]?\d+|\^-?\d+|/\d+)? )
        (?:\s?[ap]\.?m\b\.?|\s?[%°€£$]\w?|\s(?:thousand|million|billion|trillion)\b)?""",
    re.VERBOSE | re.IGNORECASE,
)
_BEHIND_NUMBER: Final = re.compile(r"[-\s]?[^\W\d_]+(?:/[^\W\d_]+|\^\d)?(?:\s[^\W\d_]+){0,2}")


def last_quantity(sentence: str) -> str | None:
    """Return the last number of a sentence, with its unit or noun."""
    plain = plain_text(sentence)
    last = None
    for last in QUANTITY.finditer(plain):
        pass
    if last is None:
        return None
    number = last[0].rstrip(".,")
    behind = _BEHIND_NUMBER.match(plain, last.end())
    words = behind[0].split(" ") if behind and last.end() == last.start() + len(number) else []
    for count in range(len(words), 0, -1):
        longer = number + " ".join(words[:count])
        if form_of(longer).kind == "value" and form_of(longer).weaker:
            return longer
    return number


def last_number_in(text: str) -> str | None:
    """Return the last number of a text of any length, with its unit."""
    size = 600
    while size < len(text):
        if number := last_quantity(text[-size:].partition(" ")[2]):
            return number
        size *= 4
    return last_quantity(text)


def lowered(text: str) -> str:
    """Return the text in lower case with every character at its old index."""
    small = text.lower()
    if len(small) == len(text):
        return small
    return "".join(sign.lower() if len(sign.lower()) == 1 else sign for sign in text)
