"""What the reference changes in the sources that griffe reads: a griffe extension, see
``mkdocs.yml``.

Docstrings are written for ``help()``: roles of Sphinx become links, and examples become
blocks of code. The fields of pydantic's models get the default that is in force, and
their bounds.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from typing import Any, Final

import griffe

ROLE: Final = re.compile(
    r":(?:class|func|meth|attr|data|mod):`(?:(~?)([\w.]+)|([\w.]+) <([\w.]+)>)`"
)
BOUNDS: Final = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}

logger = griffe.get_logger("docs.site")


class Docstrings(griffe.Extension):
    """Rewrites each package after it is read."""

    def on_package(
        self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **kwargs: Any
    ) -> None:
        """Rewrite docstrings and defaults."""
        if pkg.name == "langchain_reasc":
            _add_calibrate(pkg["runnable.calibrate"])
        for item in _objects(pkg):
            if isinstance(item, griffe.Attribute) and isinstance(
                item.parent, griffe.Class
            ):
                _set_default(item)
            for parameter in (
                item.parameters if isinstance(item, griffe.Function) else ()
            ):
                parameter.default = _value(item, parameter.default)
            if item.docstring:
                item.docstring.value = _markdown(item.docstring.value, item)


def _objects(parent: griffe.Object) -> Iterator[griffe.Object]:
    yield parent
    for member in parent.members.values():
        if isinstance(member, griffe.Object):
            yield from _objects(member)


def _add_calibrate(module: griffe.Module) -> None:
    """Show the options of ``calibrate`` and ``acalibrate`` with their defaults, as
    ``_calibrate`` has them.
    """
    source = module["_calibrate"]
    docstring = module["calibrate"].docstring
    for name, text in (
        ("calibrate", docstring.value),
        ("acalibrate", "The asynchronous :func:`calibrate`."),
    ):
        form = griffe.Function(
            name,
            parameters=griffe.Parameters(*list(source.parameters)[1:]),
            returns=source.returns,
            docstring=griffe.Docstring(text, parser=docstring.parser),
            runtime=True,
        )
        form.labels |= {"async"} if name == "acalibrate" else set()
        module.set_member(name, form)


def _set_default(field: griffe.Attribute) -> None:
    """Replace ``Field(...)`` and the names of constants by the default itself; show the
    description as text, and the bounds below it.
    """
    kind = field.annotation
    calls = [
        part
        for part in _parts(field.annotation, field.value)
        if str(part.function) == "Field"
    ]
    given = {
        argument.name: argument.value
        for call in calls
        for argument in call.arguments
        if isinstance(argument, griffe.ExprKeyword)
    }
    if "description" in given and field.docstring is None:
        text = ast.literal_eval(str(given["description"]))
        field.docstring = griffe.Docstring(inspect.cleandoc(text), parent=field)
    if field.value in calls:
        first = [
            one
            for one in field.value.arguments
            if not isinstance(one, griffe.ExprKeyword)
        ]
        made = f"{given['default_factory']}()" if "default_factory" in given else None
        field.value = given.get("default", first[0] if first else made)
    field.value = _value(field, field.value)
    if isinstance(kind, griffe.ExprSubscript) and str(kind.left) == "Annotated":
        field.annotation = kind.slice.elements[0]
    if field.parent.name == "SamplingFields":
        defaults = field.parent.parent["SamplingParameters"].members
        field.value = (
            defaults[field.name].value if field.name in defaults else field.value
        )
    bounds = [
        f"{sign} {_value(field, given[name])}"
        for name, sign in BOUNDS.items()
        if name in given
    ]
    if field.docstring and bounds:
        field.docstring.value += f"\n\nAllowed: {' and '.join(bounds)}."


def _value(item: griffe.Object, default: Any) -> Any:
    """Return a default, or the value of the constant that it names."""
    constant = (
        _resolved(item, default.name) if isinstance(default, griffe.ExprName) else None
    )
    return (
        constant.value
        if isinstance(constant, griffe.Attribute) and constant.value is not None
        else default
    )


def _parts(*expressions: Any) -> Iterator[griffe.ExprCall]:
    """Yield the calls in expressions."""
    for expression in expressions:
        if isinstance(expression, griffe.ExprCall):
            yield expression
        if isinstance(expression, griffe.Expr):
            yield from _parts(
                *(
                    part
                    for part in expression.iterate(flat=False)
                    if part is not expression
                )
            )


def _markdown(text: str, item: griffe.Object) -> str:
    """Return a docstring with links, and with its examples as blocks of code."""
    text = re.sub(
        r"^( *)Example:\n(?=\s*>>>)", r"\1Examples:\n", text, flags=re.MULTILINE
    )
    text = re.sub(
        r"^( *)\.\. code-block:: (\w+)\n\n((?:\1    .*\n?|\n)+)",
        _fenced,
        text,
        flags=re.MULTILINE,
    )
    text = re.sub(r"::\n\n", ":\n\n", text)
    return ROLE.sub(
        lambda role: _link(item, role[4] or role[2], role[3], short=bool(role[1])), text
    )


def _fenced(block: re.Match[str]) -> str:
    indent, language, code = block.groups()
    lines = [line[4:] for line in code.rstrip().splitlines()]
    return "\n".join([f"{indent}```{language}", *lines, f"{indent}```", "", ""])


def _link(item: griffe.Object, name: str, title: str | None, *, short: bool) -> str:
    """Return a link to a name; text alone if the name is not in the reference."""
    shown = title or (
        name.rpartition(".")[2]
        if short
        else name.lstrip(".").removeprefix("langchain_reasc.")
    )
    target = _resolved(item, name)
    if target is None:
        if (
            "." in name
            and not name.startswith(".")
            and name.split(".")[0] not in item.modules_collection
        ):
            return f"`{shown}`"  # of a package that is not read
        logger.warning(f"{item.path}: its docstring names {name}, which does not exist")
        return f"`{shown}`"
    return (
        f'<autoref optional identifier="{target.path}"><code>{shown}</code></autoref>'
    )


def _resolved(item: griffe.Object, name: str) -> griffe.Object | griffe.Alias | None:
    """Return what a name means in an object: a full path, or a member of it, of its
    class, module or package.
    """
    scopes: list[Any] = [item.modules_collection]
    scope: griffe.Object | None = item
    while scope is not None:
        scopes.append(scope)
        scope = scope.parent
    for scope in scopes:
        found: Any = scope
        try:
            for part in name.lstrip(".").split("."):
                found = (
                    found.all_members[part]
                    if isinstance(found, griffe.Object)
                    else found[part]
                )
                found = found.final_target if found.is_alias else found
        except (KeyError, griffe.AliasResolutionError, griffe.CyclicAliasError):
            continue
        return found
    return None
