"""Regular expressions of a JSON schema, put so that llama.cpp's converter reads them rightly."""

import re
from typing import Final

__all__ = ["as_json_string_pattern"]

_CLASSES: Final = {"d": "0-9", "w": "a-zA-Z0-9_", "s": " "}
_NOT_IN_JSON: Final = r'"\\\x7F\x00-\x1F'  # must be escaped in a JSON string, so a pattern's negation excludes it
_MAX_COUNT: Final = 500
_PART: Final = re.compile(r"\\.|\[\^?|\(\?:|\{(\d*),?(\d*)\}|.", re.DOTALL)


def as_json_string_pattern(pattern: str) -> str:
    r"""The same pattern without what the converter does not know: ``\d``, ``\w``, ``\s``, escaped signs, ``(?:``.

    Raises:
        ValueError: the pattern uses something that cannot be put so.
    """
    done, inside = [], False
    for match in _PART.finditer(pattern):
        part = match[0]
        if part.startswith("\\"):
            done.append(_escaped(part[1], inside))
        elif inside:
            inside = part != "]"
            done.append(_sign(part) if part in "[(" else part)
        elif part.startswith("["):
            inside = True
            done.append(part + (_NOT_IN_JSON if part == "[^" else ""))
        elif part == '"':
            raise ValueError("a double quote in a pattern is not supported")
        elif max((int(count) for count in match.groups() if count), default=0) > _MAX_COUNT:
            raise ValueError(f"{part}: a pattern can repeat {_MAX_COUNT} times at most")
        else:
            done.append("(" if part == "(?:" else part)
    return "".join(done)


def _escaped(sign: str, inside: bool) -> str:
    if sign in _CLASSES:
        return _CLASSES[sign] if inside else f"[{_CLASSES[sign]}]"
    if sign.isalnum() or sign in '"\\':
        raise ValueError(f"\\{sign} in a pattern is not supported")
    return _sign(sign) if inside else f"[{_sign(sign)}]"


def _sign(sign: str) -> str:
    return f"\\x{ord(sign):02X}" if ord(sign) < 128 else sign
