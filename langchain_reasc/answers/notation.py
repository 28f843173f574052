r"""Write TeX, typography and markup plainly: ``\dfrac{3}{4}`` as ``3/4``, ``−5`` as
``-5``, ``**blue**`` as ``blue``.

Notation says nothing about an answer. What is no notation stays as it is written.
"""

import re
import unicodedata
from typing import Final

_SIGNS: Final = str.maketrans(
    dict.fromkeys("−‒﹣－", "-")
    | dict.fromkeys("\t\u00a0\u2007\u2009\u200a\u202f\u3000", " ")
    | dict.fromkeys("\u200b\u200e\u200f\u2060\ufeff\ufe0f", "")
    | {
        "⁄": "/",
        "，": ",",
        "：": ":",
        "（": "(",
        "）": ")",
        "％": "%",
        "＄": "$",
        "’": "'",
        "‘": "'",
        "º": "°",
        "≦": "≤",
        "≧": "≥",
        "～": "~",
        "٪": "%",
        "٫": ".",
        "٬": ",",
    }
)
_FULL_WIDTH_OR_LOWERED: Final = re.compile("[０-９Ａ-Ｚａ-ｚ＝＋＜＞．₀-₉]")
_FRACTION_SIGN: Final = re.compile("[½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞]")
_RAISED: Final = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ]+")
_OTHER_DIGIT: Final = re.compile(r"[^\x00-\x7f]")

_SYMBOLS: Final = {
    command: symbol
    for symbol, commands in {
        "π": "pi", "∞": "infty", "≤": "le leq leqslant", "≥": "ge geq geqslant", "≠": "ne neq", "±": "pm",
        "×": "times", "·": "cdot", "÷": "div", "√": "sqrt", "°": "circ degree", "∪": "cup", "∩": "cap",
        "∅": "emptyset varnothing", "→": "to rightarrow longrightarrow", "∈": "in", "≈": "approx", "θ": "theta",
        "α": "alpha", "β": "beta", "γ": "gamma", "λ": "lambda", "φ": "phi varphi", "<": "lt", ">": "gt",
        "%": "%", "$": "$", "#": "#", "&": "&", "_": "_", "{": "{ lbrace", "}": "} rbrace", "|": "mid",
        "": "left right displaystyle textstyle limits big Big bigl bigr Bigl Bigr bigg Bigg ! ( ) [ ]",
        " ": "quad qquad , ; :",
    }.items()
    for command in commands.split()
} | {" ": " "}  # fmt: skip
_COMMAND: Final = re.compile(r"\\\\|\\([a-zA-Z]+|[ %$#&_{}!()\[\],;:])")
_WRAPPER: Final = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|math(?:bf|it|rm|sf|tt|normal|bb)|boldsymbol|bm|operatorname|mbox|emph|"
    r"underline|boxed|fbox)\s?(?=\{)"
)
_BRACE: Final = re.compile(r"\\[{}]|[{}]")
# "1\,000", "1{,}000"
_THIN_GROUP: Final = re.compile(r"(?<=\d)(?:\\[,;: ]|\{,\})(?=\d{3}(?!\d))")
# "90^\circ"
_DEGREE: Final = re.compile(r"\^\s?\{?\s?\\circ\s?\}?")
_FRACTION: Final = re.compile(
    r"(-?)\s?\\[dtc]?frac\s?(?:\{\s?(-?\d+)\s?\}|(\d))\s?(?:\{\s?(\d+)\s?\}|(\d))"
)
_ANY_FRACTION: Final = re.compile(r"\\[dtc]frac(?![a-zA-Z])")
# "$x$" is a formula, "$5 and $6" are two prices.
_DELIMITED: Final = re.compile(
    r"(?<!\\)\$\$?\s?([^$\s](?:(?:\\\$|[^$])*[^$\s])?)(?<!\\)\$\$?(?!\d)"
)
# "3.2 × 10^{-4}"
_TEN_TO_THE: Final = re.compile(
    r"(?<=\d)\s?(?:×|x|\*|·|⋅)\s?10\s?\^\s?(?:\{\s?([-+]?\d+)\s?\}|([-+]?\d+))",
    re.IGNORECASE,
)
# "x^{2}" is "x^2".
_SHORT_GROUP: Final = re.compile(r"(?<=[\^_√])\{(\w)\}")
# ```python
_FENCE: Final = re.compile(
    r"\A\s*(?:```|~~~)[\w+-]*[ \t]*\n(.*?)\n?\s*(?:```|~~~)?\s*\Z", re.DOTALL
)
_QUOTES: Final = dict(zip("\"'`“”„«「『‹*", "\"'`””“»」』›*", strict=True))
_EMPHASIS: Final = re.compile(r"\*\*\*?|(?<!\w)__(?=\S)|(?<=\S)__(?!\w)")


def plain_text(text: str) -> str:
    """Write TeX and typography as plain text. Words, line breaks and markup stay."""
    if not text.isascii():
        text = text.translate(_SIGNS)
        text = _FULL_WIDTH_OR_LOWERED.sub(_compatible, text)
        text = _FRACTION_SIGN.sub(
            lambda sign: f" {_compatible(sign).replace('⁄', '/')}", text
        )
        text = _RAISED.sub(lambda sign: f"^{_compatible(sign).replace('−', '-')}", text)
        text = _OTHER_DIGIT.sub(_western_digit, text)
    if "\\" in text or "$" in text or "{" in text:
        text = _without_commands(text)
    return _TEN_TO_THE.sub(r"e\1\2", text)


def without_markup(text: str) -> str:
    """Return a text without the fence, emphasis, quotes and white space around all of
    it, in one line of single spaces.

    Line breaks in code count, and stay.
    """
    fenced = _FENCE.match(text)
    if fenced and "```" not in fenced[1]:
        return "\n".join(line.rstrip() for line in fenced[1].strip("\n").splitlines())
    text = _EMPHASIS.sub("", text).strip()
    if text.startswith("\\[") and text.endswith("\\]"):
        text = text[2:-2].strip()
    while len(text) > 1 and _QUOTES.get(text[0]) == text[-1]:
        if text[0] in text[1:-1]:  # 'ran', 'fell'
            break
        text = text[1:-1].strip()
    return text


def _western_digit(sign: re.Match[str]) -> str:
    if sign[0].isdecimal():
        return str(unicodedata.decimal(sign[0]))
    return sign[0]


def _compatible(sign: re.Match[str]) -> str:
    """Write a sign as the plain ones that it stands for: ``²`` as ``2``."""
    return unicodedata.normalize("NFKC", sign[0])


def _without_commands(text: str) -> str:
    text = _DELIMITED.sub(r"\1", _THIN_GROUP.sub("", text))
    text = _DEGREE.sub("°", _unwrapped(text))
    text = text.replace("{,}", ".").replace("~", " ")
    text = _FRACTION.sub(_written_fraction, text)
    text = _ANY_FRACTION.sub(r"\\frac", text)
    text = _COMMAND.sub(
        lambda command: _SYMBOLS.get(command[1] or "", command[0]), text
    )
    return _SHORT_GROUP.sub(r"\1", text)


def _written_fraction(match: re.Match[str]) -> str:
    # The space keeps a whole number in front apart: 3\frac{1}{2} is 3 1/2.
    return f" {match[1]}{match[2] or match[3]}/{match[4] or match[5]}"


def _unwrapped(text: str) -> str:
    r"""Remove commands that only change the appearance: ``\text{\textbf{Blue}}``
    becomes ``Blue``.
    """
    if not _WRAPPER.search(text):
        return text
    pieces: list[str] = []
    dropped: list[bool] = []  # for each open brace, whether it goes with its command
    position = 0
    # Where the brace of a command begins -> where the command does.
    starts = {command.end(): command.start() for command in _WRAPPER.finditer(text)}
    for brace in _BRACE.finditer(text):
        is_dropped = brace.start() in starts
        if brace[0] == "{":
            dropped.append(is_dropped)
        elif brace[0] == "}" and dropped:
            is_dropped = dropped.pop()
        pieces.append(text[position : starts.get(brace.start(), brace.start())])
        if not is_dropped:
            pieces.append(brace[0])
        position = brace.end()
    return "".join([*pieces, text[position:]])
