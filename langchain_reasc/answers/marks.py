"""LaTeX and typographic spellings in plain marks: ``\\dfrac{3}{4}`` as ``3/4``, ``–5`` as ``-5``, ``3 × 10^8`` as 3e8.

All in linear time, since the text comes from a model and may be anything.
"""

import re
import unicodedata

__all__ = ["boxed_content", "in_plain_marks", "unwrapped"]

_LONGEST_BOX = 2000

_SIGNS = str.maketrans(
    {dash: "-" for dash in "−–‒﹣－"}
    | {space: " " for space in "\u00a0\u2007\u2009\u200a\u202f"}
    | {hidden: "" for hidden in "\u200b\u2060\ufeff"}
    | {"⁄": "/", "，": ",", "：": ":", "（": "(", "）": ")", "％": "%", "＄": "$"}
)
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")

_WRAPPERS = (
    r"text(?:bf|it|rm|sf|tt|normal)?|math(?:bf|it|rm|sf|tt|normal)|boldsymbol|bm|operatorname|mbox|emph|underline|"
    r"boxed|fbox"
)
_BRACES = re.compile(rf"\\[{{}}]|\\(?:{_WRAPPERS})\s?\{{|[{{}}]")
_BOX = re.compile(r"\\(?:boxed|fbox)")
_FORMATTING = re.compile(r"\\(?:left|right|displaystyle|textstyle|big[lr]?|Big[lr]?)(?![A-Za-z])|\\!|\\[()\[\]]")
_THIN_GROUP = re.compile(r"(?<=\d)(?:\\[,;: ]|\{,\})(?=\d{3}(?!\d))")
_GAP = re.compile(r"(?<!\\)\\[,;: ]|\\q?quad(?![A-Za-z])|~")
_DEGREES = re.compile(r"\s?\^\s?\{?\s?\\circ\s?\}?(?:\s?[CF]\b)?|\s?°(?:\s?[CF]\b)?")
_FRAC = re.compile(r"\\[dtc]?frac(?![a-zA-Z])")
_SMALL_FRAC = re.compile(r"(-?)\s?\\frac(?:\{\s?(-?\d+)\s?\}|\s?(\d)\s?)(?:\{\s?(\d+)\s?\}|(\d))")
_ROOT = re.compile(r"\\sqrt\s?([0-9a-zA-Z])")
_TEN_TO_THE = re.compile(
    r"(?<=\d)\s?(?:×|x|\*|·|⋅|\\times|\\cdot)\s?10\s?\^\s?(?:\{\s?([-+]?\d+)\s?\}|([-+]?\d+))", re.IGNORECASE
)
_DECIMAL_COMMA = re.compile(r"(?<![\d.,])(\d{1,9}),(?=\d{1,2}\s?(?:€|EUR\b|Euro\b|\\?%))", re.IGNORECASE)


def in_plain_marks(text: str) -> str:
    """The text with LaTeX's and typography's spellings of numbers and formats made plain; words stay as they are."""
    if not text.isascii():
        text = _ascii_signs(text)
    if "\\" in text or "{" in text:
        text = _without_latex(text)
    text = _TEN_TO_THE.sub(r"e\1\2", text)
    return _DECIMAL_COMMA.sub(r"\1.", text)


def unwrapped(text: str) -> str:
    """The text without the commands that only say how it looks: ``\\text{\\textbf{Blue}}`` is ``Blue``."""
    kept: list[str] = []
    dropped: list[bool] = []  # of each brace that is open, whether it went with its command
    at = 0
    for brace in _BRACES.finditer(text):
        kept.append(text[at : brace.start()])
        at, mark = brace.end(), brace[0]
        if mark == "}":
            if not (dropped and dropped.pop()):
                kept.append(mark)
        elif mark in ("{", "\\{", "\\}"):
            kept.append(mark)
            if mark == "{":
                dropped.append(False)
        else:
            dropped.append(True)
    return "".join([*kept, text[at:]])


def boxed_content(text: str, *, cut_off: bool = False) -> str | None:
    """The content of the last ``\\boxed{...}``, braces balanced; None without one, or where it was cut off.

    A box without braces (``\\boxed 7``) shows no end, so that in a text that was cut off it is none.
    """
    opening = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    if opening < 0 or not (command := _BOX.match(text, opening)):
        return None
    rest = text[command.end() : command.end() + _LONGEST_BOX].lstrip(" ")
    if not rest.startswith("{"):
        if cut_off:
            return None
        bare = re.match(r"-?\d+(?:\.\d+)?|[A-Za-z](?![A-Za-z])", rest)
        return bare[0] if bare else None
    depth = 0
    for brace in re.finditer(r"\\[{}]|[{}]", rest):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return rest[1 : brace.start()]
    return None


def _ascii_signs(text: str) -> str:
    text = text.translate(_SIGNS)
    text = re.sub("[½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞]", lambda sign: f" {_spelled_out(sign[0])}", text)
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+", lambda raised: f"^{raised[0].translate(_RAISED)}", text)
    return re.sub(r"[^\x00-\x7f]", lambda sign: str(int(sign[0])) if sign[0].isdecimal() else sign[0], text)


def _spelled_out(fraction: str) -> str:
    return unicodedata.normalize("NFKC", fraction).replace("⁄", "/")


def _without_latex(text: str) -> str:
    text = unwrapped(_THIN_GROUP.sub("", text)).replace("{,}", ".").replace("\\$", "$").replace("\\%", "%")
    text = _GAP.sub(" ", _DEGREES.sub("", _FORMATTING.sub("", text)))
    text = _FRAC.sub(r"\\frac", text)
    text = _SMALL_FRAC.sub(r" \1\2\3/\4\5", text)  # the space keeps a whole number in front apart
    return _ROOT.sub(r"\\sqrt{\1}", text)
