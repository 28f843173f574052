"""Tool calls as answers: canonical JSON, without ids and without arguments that hold
reasoning.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from langchain_reasc.answers.json_values import (
    REASONING,
    Names,
    Path,
    canonical,
    check_options,
    leaves,
    names_of,
    near,
    option_for,
)
from langchain_reasc.answers.schemas import ANY_TOOL, Schemas, arguments_in, received
from langchain_reasc.complaints import nearest
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.files import parse_json

REFUSED_CALLS: Final = "calls that the tool's schema refuses"
UNKNOWN_TOOL: Final = "calls of an unknown tool"

Calls = Iterable[Mapping[str, Any]]
"""Tool calls, each with ``name`` and ``args``."""

_NORMALIZERS: Final[dict[str, Callable[[str], str]]] = {
    "casefold": lambda text: " ".join(text.split()).casefold(),
    "whitespace": lambda text: " ".join(text.split()),
}


@dataclass(frozen=True, kw_only=True)
class ToolVotes:
    """How tool calls are compared.

    An argument is named ``"city"``, or with its tool ``"weather.city"``. An argument
    inside another is ``"filter.date"``, with or without lists between them, or with its
    tool ``"search.filter.date"``.

    Attributes:
        exclude_args: arguments that are left out of the vote: of every tool, or a
            mapping from tool to arguments. By default those in which a model thinks
            aloud, such as ``reasoning``.
        tolerance: argument -> the largest difference at which two numbers still agree.
        normalize: argument -> how its strings are normalized before they are compared:
            a function, ``"casefold"`` (which also ignores white space) or
            ``"whitespace"``.
        hierarchical: whether responses vote first on which tools are called, and then
            on the arguments.
        check_schema: whether a call casts no vote if the tool does not exist or its
            schema refuses the arguments.

    Raises:
        ConfigurationError: a tolerance is not a distance, a name is unknown, or a
            single string is given where several are expected.
    """

    exclude_args: Names | Mapping[str, Names] = REASONING
    tolerance: Mapping[str, float] = field(default_factory=dict)
    normalize: Mapping[str, Callable[[str], str] | str] = field(default_factory=dict)
    hierarchical: bool = True
    check_schema: bool = True

    def __post_init__(self) -> None:
        check_options(self.tolerance, exclude_args=self.exclude_args)
        for name in self.normalize.values():
            if not callable(name) and name not in _NORMALIZERS:
                names = ", ".join(_NORMALIZERS)
                raise ConfigurationError(
                    f"normalize takes a function, or one of {names}, got {name!r}"
                )

    def as_plain(self) -> dict[str, Any]:
        """Return the options as plain data, except functions; names in any order are
        the same.
        """
        excluded: Any = self.exclude_args
        if isinstance(excluded, Mapping):
            excluded = {tool: sorted(names) for tool, names in excluded.items()}
        else:
            excluded = sorted(excluded)
        return {**asdict(self), "exclude_args": excluded}

    def unknown_names(self, schemas: Schemas) -> list[str]:
        """Return a sentence for each name in the options that no tool has, with the
        argument that may be meant.

        Only the first part of a name is looked up, such as ``filter`` in
        ``filter.date``. Every name is accepted if a tool takes arguments that its
        schema does not name.
        """
        argument_names: list[str] = []
        for tool, schema in schemas.items() if (options := list(self._named())) else ():
            if (names := arguments_in(schema)) is None:
                return []
            argument_names += [*names, *(f"{tool}.{name}" for name in names)]
        complaints = []
        for option, name in options:
            if not any(
                name == argument or name.startswith(f"{argument}.")
                for argument in argument_names
            ):
                if meant := nearest(name, argument_names):
                    hint = f"; did you mean {meant!r}?"
                else:
                    hint = ""
                tools = ", ".join(sorted(schemas))
                complaints.append(
                    f"tool_votes: {option} names {name!r}, an argument that no tool "
                    f"here has ({tools}){hint}"
                )
        return complaints

    def _named(self) -> Iterator[tuple[str, str]]:
        """Yield (option, name) for each name in the options, except the default names
        of reasoning.
        """
        excluded = self.exclude_args
        if isinstance(excluded, Mapping):
            excluded = [
                f"{tool}.{name}" for tool, names in excluded.items() for name in names
            ]
        yield from (
            ("exclude_args", name) for name in excluded if name not in REASONING
        )
        yield from (
            (option, name)
            for option in ("tolerance", "normalize")
            for name in getattr(self, option)
        )

    def received(
        self, calls: Calls, schemas: Schemas | None
    ) -> list[dict[str, Any]] | str:
        """Return the calls with the arguments that their tools would get, or why they
        cast no vote.

        Args:
            calls: each with ``name`` and ``args``.
            schemas: tool -> schema of its arguments, from :func:`schemas_of`; None if
                the schemas are unknown.
        """
        found = []
        for call in calls:
            if schemas is None:
                schema = None
            else:
                schema = schemas.get(call["name"], schemas.get(ANY_TOOL))
            if schema is None and schemas is not None and self.check_schema:
                return UNKNOWN_TOOL
            if (
                args := received(call["args"], schema, check=self.check_schema)
            ) is None:
                return REFUSED_CALLS
            found.append({"name": call["name"], "args": args})
        return found

    def answer(self, calls: Calls) -> str | None:
        """Return calls (as :meth:`received` gives them) as canonical JSON, or None if
        JSON cannot express them.

        Calls and their arguments are sorted, and ids are dropped. ``1`` and ``1.0``
        agree, but not ``true`` or ``"1"``. Strings must be equal letter by letter,
        because a path or a name may depend on its spelling. UUIDs in any case, equal
        instants, and composed or decomposed accents agree.

        Args:
            calls: each with ``name`` and ``args``.
        """
        return _spelled(
            {"name": call["name"], "args": self._compared(call["name"], call["args"])}
            for call in calls
        )

    def kind(self, calls: Calls) -> str | None:
        """Return which tools are called and how often, or None if calls are voted on as
        a whole.
        """
        return _kind(calls) if self.hierarchical else None

    def label(self, right: str, schemas: Schemas | None = None) -> str:
        """Return the right answer, spelled as :meth:`answer` spells it if it is a list
        of calls.
        """
        calls = _calls_in(right)
        received = right if calls is None else self.received(calls, schemas)
        return right if isinstance(received, str) else self.answer(received) or right

    def same(self, one: str, other: str) -> bool:
        """Return whether two answers are the same calls, with numbers within the
        tolerance. It is not transitive.
        """
        if one == other or not self.tolerance:
            return one == other
        calls = _calls_in(one)
        other_calls = _calls_in(other)
        if calls is None or other_calls is None or len(calls) != len(other_calls):
            return False
        agree = [
            [
                call["name"] == another["name"]
                and near(call["args"], another["args"], self.tolerance, call["name"])
                for another in other_calls
            ]
            for call in calls
        ]
        return agree[0][0] if len(calls) == 1 else _all_paired(agree)

    def _compared(self, tool: str, value: Any, path: Path = ()) -> Any:
        """Return the arguments that count for the vote, with normalized strings."""
        if isinstance(value, Mapping):
            inner = {str(key): (item, (*path, str(key))) for key, item in value.items()}
            return {
                key: self._compared(tool, *place)
                for key, place in inner.items()
                if not self._is_excluded(tool, place[1])
            }
        if isinstance(value, list | tuple):
            return [self._compared(tool, item, path) for item in value]
        if (
            isinstance(value, str)
            and (how := option_for(self.normalize, path, tool)) is not None
        ):
            return how(value) if callable(how) else _NORMALIZERS[how](value)
        return value

    def _is_excluded(self, tool: str, path: Path) -> bool:
        if isinstance(self.exclude_args, Mapping):
            return ".".join(path) in self.exclude_args.get(tool, ())
        return not set(names_of(path, tool)).isdisjoint(self.exclude_args)


def kind_of(answer: str | None) -> str | None:
    """Return which tools an answer calls, or None if the answer is not a list of calls."""
    calls = None if answer is None else _calls_in(answer)
    return None if calls is None else _kind(calls)


def arguments_of(answer: str) -> Mapping[str, str] | None:
    """Return ``tool.argument`` -> value as JSON, or None if the answer is not a list of
    calls.

    Names are those of :class:`ToolVotes`. If several calls have the same tool, a value
    is a list.
    """
    calls = _calls_in(answer)
    if calls is None:
        return None
    by_tool: dict[str, list[str]] = {}
    for call in calls:
        for path, value in leaves(call["args"], (call["name"],), into_lists=True):
            if len(path) > 1:  # not that there are no arguments at all
                by_tool.setdefault(".".join(path), []).append(canonical(value))
    return {
        name: values[0] if len(values) == 1 else canonical(sorted(values))
        for name, values in by_tool.items()
    }


def _kind(calls: Calls) -> str:
    return canonical(sorted(str(call["name"]) for call in calls))


def _spelled(calls: Calls) -> str | None:
    try:
        return f"[{', '.join(sorted(map(canonical, calls)))}]"
    except (RecursionError, TypeError, ValueError):
        return None


def _calls_in(answer: str) -> list[dict[str, Any]] | None:
    if not (answer.startswith("[{") and answer.endswith("}]") and '"args"' in answer):
        return None
    try:
        calls: list[dict[str, Any]] = parse_json(answer)
    except ValueError:
        return None
    if all(
        isinstance(call, dict) and call.keys() == {"name", "args"} for call in calls
    ):
        return calls
    return None


def _all_paired(agree: list[list[bool]]) -> bool:
    """Return whether the calls can be matched one to one; ``agree`` has the shape
    (calls, calls).
    """
    from scipy.sparse import csr_array  # deferred: heavy
    from scipy.sparse.csgraph import maximum_bipartite_matching

    return bool(
        (maximum_bipartite_matching(csr_array(agree), perm_type="column") >= 0).all()
    )
