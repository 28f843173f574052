"""The tables of options in ``backends/README.md``, made of the fields that they describe.

``python tests/documentation/option_tables.py`` writes them there anew: run it after changing an option.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any, Final, Literal, get_args, get_origin

from langchain_reasc_llama_cpp.loaded_model import LoadedModel
from langchain_reasc_llama_cpp.native import LoadFields
from langchain_reasc_llama_cpp.options import GenerationFields
from langchain_reasc_llama_cpp.sampling import DEFAULTS, SamplingFields

README: Final = Path(__file__).parents[2] / "backends" / "README.md"
TABLES: Final = {
    "Of the model, and of each call": (SamplingFields, GenerationFields),
    "Of the model alone": (LoadedModel, LoadFields),
}
"""How the line above a table begins -> the classes whose fields stand in it."""


def documented(kind: type[Any]) -> Iterator[tuple[str, str]]:
    """The fields that a class itself declares, each with what stands below it."""
    [declared] = ast.parse(dedent(inspect.getsource(kind))).body
    assert isinstance(declared, ast.ClassDef)
    for field, text in zip(declared.body, declared.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            assert isinstance(field.target, ast.Name)
            yield field.target.id, inspect.cleandoc(str(text.value.value)).replace("\n", " ").replace("``", "`")


def table(*kinds: type[Any]) -> str:
    """The table of the fields of some classes, in Markdown."""
    rows = [
        f"| `{name}` |{_default(kind, name)}| {text}{_choices(kind.model_fields[name].annotation)} |"
        for kind in kinds
        for name, text in documented(kind)
    ]
    return "\n".join(["| option | default | |", "|---|---|---|", *rows])


def written(readme: str) -> str:
    """The README with tables as they should be."""
    for above, kinds in TABLES.items():
        old = re.search(rf"^{re.escape(above)}.*\n\n((?:\|.*\n)+)", readme, re.MULTILINE)
        assert old, above
        readme = f"{readme[: old.start(1)]}{table(*kinds)}\n{readme[old.end(1) :]}"
    return readme


def _default(kind: type[Any], name: str) -> str:
    value = DEFAULTS.get(name, kind.model_fields[name].default)
    return " " if value in (None, (), {}) else f" `{list(value) if isinstance(value, tuple) else value!r}` "


def _choices(annotation: Any) -> str:
    """The texts that a field takes, if it takes certain ones only."""
    literal = next((one for one in (annotation, *get_args(annotation)) if get_origin(one) is Literal), None)
    texts = [f'"{choice}"' for choice in get_args(literal) if isinstance(choice, str)]
    return f" One of {', '.join(texts)}." if texts else ""


if __name__ == "__main__":
    README.write_text(written(README.read_text(encoding="utf-8")), encoding="utf-8")
