"""Read the fields of a request whose form is not checked yet."""

from collections.abc import Mapping
from typing import Any, NoReturn

from langchain_reasc_server.errors import Refused
from langchain_reasc_server.wire import Json


def objects(value: Any, param: str, *, or_text: bool = False) -> list[Json]:
    """Return a list of objects.

    Args:
        value: the list.
        param: its name.
        or_text: whether a text, which the caller has read, would be right too.

    Raises:
        Refused: it is something else.
    """
    if not (isinstance(value, list) and all(isinstance(one, dict) for one in value)):
        also = "a text or " if or_text else ""
        malformed(param, f"{param} must be {also}a list of objects")
    return value


def object_in(body: Mapping[str, Any], name: str) -> Json:
    """Return the object in a field, or an empty one if the field is missing.

    Raises:
        Refused: the field has something else.
    """
    value = body.get(name)
    if not isinstance(value, dict | None):
        malformed(name, f"{name} must be an object, not a {type(value).__name__}")
    return value or {}


def text_in(body: Mapping[str, Any], name: str, param: str) -> str:
    """Return the text in a field of an object that is in ``param``.

    Raises:
        Refused: the field has something else, or is missing.
    """
    value = body.get(name)
    if not isinstance(value, str):
        found = (
            "is missing"
            if value is None
            else f"must be a text, not a {type(value).__name__}"
        )
        malformed(param, f"{name}{'' if name == param else f' in {param}'} {found}")
    return value


def malformed(param: str, message: str) -> NoReturn:
    """Refuse a request because of one of its fields.

    Raises:
        Refused: always.
    """
    raise Refused(400, message, param=param, code="invalid_value")
