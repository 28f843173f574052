"""The table of ``docs/errors.md``, made of the docstrings of the errors.

``python tests/documentation/error_table.py`` writes the table into the page.
"""

import inspect
import re
from pathlib import Path
from typing import Final

from langchain_reasc import exceptions
from langchain_reasc.exceptions import ReASCError

PAGE: Final = Path(__file__).parents[2] / "docs" / "errors.md"
ADVICE: Final = "What to do: "
TABLE: Final = re.compile(r"^\| error \|.*?\n(?=\n|\Z)", re.DOTALL | re.MULTILINE)


def errors() -> list[type[ReASCError]]:
    """The public errors, in the order in which the module defines them."""
    values = vars(exceptions).values()
    classes = [value for value in values if isinstance(value, type) and issubclass(value, ReASCError)]
    return [cls for cls in classes if cls.__name__ in exceptions.__all__]


def meaning_and_advice(error: type[ReASCError]) -> tuple[str, str]:
    """The first paragraph of an error's own docstring, and what the docstring says to do."""
    paragraphs = [" ".join(part.split()) for part in inspect.cleandoc(error.__doc__ or "").split("\n\n")]
    [advice] = [part.removeprefix(ADVICE) for part in paragraphs if part.startswith(ADVICE)]
    return paragraphs[0], advice[0].upper() + advice[1:]


def table() -> str:
    """The table as Markdown, with a row for each error."""
    lines = ["| error | what it means | what to do | retry? |", "|---|---|---|---|"]
    for error in errors():
        meaning, advice = meaning_and_advice(error)
        retry = "yes" if error.is_retryable else "no"
        lines.append(f"| `{error.__name__}` | {meaning} | {advice} | {retry} |".replace("``", "`"))
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(TABLE.sub(lambda _: table(), page), encoding="utf-8")
