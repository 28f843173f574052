"""Messages of the library, which name arguments of Python, in the words of the command line; and in its characters."""

import codecs
import re
import sys

from langchain_reasc.cli.secrets import hidden

__all__ = ["in_options", "in_plain", "speak_plainly"]

_FIELD = r"rename the field, or name it with read_questions\(\.\.\., (\w+)_field=\.\.\.\)"
_OPTIONS = {
    r"allow_fingerprint_mismatch=True": "--allow-mismatch",
    _FIELD: r"name the field with --\1-field",
    r"format='([\w-]+)' settles": r"--format \1 settles",
    r"question_field and answer_field": "--question-field and --answer-field",
    r"calibrate on four samples of each to know it": "calibrate on several of each to know it (--samples 4)",
    r"pass calibration=None to count votes": "count votes with --calibration none",
    r"on_missing_confidence='count'": "--calibration none",
    r"answer=\.\.\.": "--answer",
    r"max_tokens=\.\.\.": "--max-tokens",
    r", or pass a function from text to an answer": "",
    r"\(api_key=\.\.\.\)": "(--key-variable NAME)",
    r", or load the model with n_ctx=[\d,]+ or more": "",
    r"pass chat_template='\.\.\.' \(Jinja\)": "take a model that was tuned to chat",
    r" \(ChatOpenAI: logprobs=True, top_logprobs=20\)": "",
}
_PLAIN = str.maketrans(
    {"Δ": "Delta", "±": "+-", "−": "-", "–": "-", "—": "-", "…": "...", "≥": ">=", "≤": "<=", "½": "1/2", "×": "x"}
    | {"μ": "mu", "σ": "sigma", "τ": "tau", "λ": "lambda", "’": "'", "‘": "'", "“": '"', "”": '"', "•": "*", "→": "->"}
)


def in_options(text: str) -> str:
    """What a message says, with the options of the commands in place of arguments of Python, and without secrets."""
    for argument, option in _OPTIONS.items():
        text = re.sub(argument, option, text)
    return hidden(text)


def in_plain(text: str) -> str:
    """A text in ASCII's letters, as :func:`speak_plainly` would spell it; for what has to be measured first."""
    return text.encode("ascii", _SPELLED_OUT).decode("ascii")


def speak_plainly() -> None:
    """Let no character end a command: what stdout or stderr cannot encode is spelled out."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # else it is no text file, and whoever put it there knows
            stream.reconfigure(errors=_SPELLED_OUT)


def _spelled_out(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    plain = error.object[error.start : error.end].translate(_PLAIN)
    encodable = plain.encode("ascii", "backslashreplace")
    return encodable.decode("ascii"), error.end


_SPELLED_OUT = "langchain_reasc.spelled_out"
codecs.register_error(_SPELLED_OUT, _spelled_out)
