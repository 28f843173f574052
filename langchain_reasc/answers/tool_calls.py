"""The answer of a response that calls tools: its calls, whatever their order and ids."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from langchain_reasc.answers.json_values import REASONING, Names, canonical, check_tolerance, named, names_of, near
from langchain_reasc.answers.schemas import fields_of, read, refuses
from langchain_reasc.answers.tool_schemas import ANY_TOOL
from langchain_reasc.complaints import nearest
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.untrusted import parse_json

__all__ = [
    "NORMALIZERS",
    "REFUSED_CALLS",
    "UNKNOWN_TOOL",
    "ToolVotes",
    "arguments_of",
    "calls_answer",
    "canonical_calls",
    "kind_of",
]

REFUSED_CALLS = "calls that the tool's schema refuses"
UNKNOWN_TOOL = "calls of an unknown tool"

NORMALIZERS: Final[dict[str, Callable[[str], str]]] = {
    "casefold": lambda text: " ".join(text.split()).casefold(),
    "whitespace": lambda text: " ".join(text.split()),
}
"""What ``ToolVotes(normalize=...)`` knows by name; ``casefold`` sees to spaces too."""

Schemas = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class ToolVotes:
    """How calls of tools are compared.

    An argument is named ``"city"``; one of a certain tool ``"weather.city"``; one inside another ``"filter.date"``,
    whether or not lists are between them; or all of it, ``"search.filter.date"``.

    Attributes:
        exclude_args: arguments that are left out of the vote; of every tool, or tool -> arguments. By default those in
            which a model thinks aloud, such as ``reasoning``.
        tolerance: argument -> how far, at most, its number is from another that it agrees with.
        normalize: argument -> what spells its strings before they are compared: a function, or ``"casefold"`` or
            ``"whitespace"``.
        hierarchical: whether responses vote on which tools are called first, and on the arguments then.
        check_schema: whether calls abstain that the tool's schema refuses, and calls of a tool that is not there.

    Raises:
        ConfigurationError: a tolerance that is no distance, an unknown name, a string where several are expected.
    """

    exclude_args: Names | Mapping[str, Names] = REASONING
    tolerance: Mapping[str, float] = field(default_factory=dict)
    normalize: Mapping[str, Callable[[str], str] | str] = field(default_factory=dict)
    hierarchical: bool = True
    check_schema: bool = True

    def __post_init__(self) -> None:
        by_tool = self.exclude_args.values() if isinstance(self.exclude_args, Mapping) else [self.exclude_args]
        if any(isinstance(names, str) for names in by_tool):
            raise ConfigurationError(f"exclude_args is a list of names, or tool -> list, got {self.exclude_args!r}")
        check_tolerance(self.tolerance)
        for name in self.normalize.values():
            if not callable(name) and name not in NORMALIZERS:
                raise ConfigurationError(
                    f"normalize takes a function, or one of {', '.join(NORMALIZERS)}, got {name!r}"
                )

    def misnamed(self, schemas: Schemas) -> list[str]:
        """What the options name that no tool has, each in a sentence with the argument that may be meant.

        Where a tool takes arguments that its schema does not name, only what is spelled almost as one that it does.

        Args:
            schemas: as in :meth:`refused`.
        """
        given = [
            *(("exclude_args", name) for name in self._excluded_names if name not in REASONING),
            *(("tolerance", name) for name in self.tolerance),
            *(("normalize", name) for name in self.normalize),
        ]
        if not given:
            return []
        known, free = set[str](), set[str]()
        for tool, schema in schemas.items():
            named, unnamed = fields_of(schema)
            known.update(name for path in named for name in names_of(path, tool))
            free.update(name for path in unnamed for name in (names_of(path, tool) if path else [""]))
        told = []
        for option, name in given:
            if name in known or any(inside and name.startswith(f"{inside}.") for inside in free):
                continue
            ends = (one for one in sorted(known) if one.endswith(f".{name}"))
            meant = next(ends, None) or nearest(name, sorted(known))
            if meant or "" not in free:
                hint = f"; did you mean {meant!r}?" if meant else ""
                tools = ", ".join(sorted(schemas))
                told.append(f"tool_votes: {option} names {name!r}, an argument that no tool here has ({tools}){hint}")
        return told

    @property
    def _excluded_names(self) -> list[str]:
        if isinstance(self.exclude_args, Mapping):
            return [f"{tool}.{name}" for tool, names in self.exclude_args.items() for name in names]
        return list(self.exclude_args)

    @property
    def exact(self) -> bool:
        """Whether calls agree only where they are spelled alike, so that nothing needs to be compared."""
        return not self.tolerance

    def refused(self, calls: Iterable[Mapping[str, Any]], schemas: Schemas | None) -> str | None:
        """Why these calls cast no vote; None where nothing is known against them.

        Args:
            calls: each with ``name`` and ``args``.
            schemas: tool -> schema of its arguments, as :func:`schemas_of` gives it; None where they are not known.
        """
        if schemas is None or not self.check_schema:
            return None
        for call in calls:
            schema = schemas.get(call["name"], schemas.get(ANY_TOOL))
            if schema is None:
                return UNKNOWN_TOOL
            # A default is the tool's own affair: it may be none that the schema allows.
            if refuses(schema, read(call["args"], schema, defaults=False)):
                return REFUSED_CALLS
        return None

    def answer(self, calls: Iterable[Mapping[str, Any]], schemas: Schemas | None = None) -> str | None:
        """The calls as canonical JSON, with the defaults of their schemas; None where they cannot be written as such.

        Args:
            calls: each with ``name`` and ``args``.
            schemas: as in :meth:`refused`.
        """
        try:
            return calls_answer(
                {"name": call["name"], "args": self._compared(call["name"], self.read(call, schemas))} for call in calls
            )
        except RecursionError:
            return None

    def read(self, call: Mapping[str, Any], schemas: Schemas | None) -> Any:
        """The arguments of a call as its tool would have them: with defaults, equal dates or numbers spelled alike."""
        schema = (schemas or {}).get(call["name"])
        return read(call["args"], schema, formats=True) if schema else call["args"]

    def kind(self, calls: Iterable[Mapping[str, Any]]) -> str | None:
        """Which tools are called, and how often each; None where calls are voted on as a whole."""
        return _kind(calls) if self.hierarchical else None

    def label(self, right: str, schemas: Schemas | None = None) -> str:
        """The right answer in the spelling of :meth:`answer`, where it is a list of calls; any other as it is."""
        calls = _calls_in(right)
        return right if calls is None else self.answer(calls, schemas) or right

    def same(self, one: str, other: str) -> bool:
        """Whether two answers are the same calls, with numbers within the tolerance. It is not transitive."""
        if one == other or self.exact:
            return one == other
        calls, others = _calls_in(one), _calls_in(other)
        if calls is None or others is None or len(calls) != len(others):
            return False
        agree = [[self._agree(call, another) for another in others] for call in calls]
        return agree[0][0] if len(calls) == 1 else _all_paired(agree)

    def _compared(self, tool: str, value: Any, path: tuple[str, ...] = ()) -> Any:
        if isinstance(value, Mapping):
            inner = {str(key): (one, (*path, str(key))) for key, one in value.items()}
            return {key: self._compared(tool, *at) for key, at in inner.items() if not self._excluded(tool, at[1])}
        if isinstance(value, list | tuple):
            return [self._compared(tool, one, path) for one in value]
        if isinstance(value, str) and (how := named(self.normalize, path, tool)) is not None:
            return how(value) if callable(how) else NORMALIZERS[how](value)
        return value

    def _excluded(self, tool: str, path: tuple[str, ...]) -> bool:
        if isinstance(self.exclude_args, Mapping):
            return ".".join(path) in self.exclude_args.get(tool, ())
        return not names_of(path, tool).isdisjoint(self.exclude_args)

    def _agree(self, call: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        tool = call["name"]
        return tool == other["name"] and near(call["args"], other["args"], self.tolerance, tool=tool)


def calls_answer(calls: Iterable[Mapping[str, Any]]) -> str | None:
    """The calls as canonical JSON, or None where they cannot be written as such.

    Calls are sorted, and so are their arguments; ids are dropped; a number is a number, so that ``1`` and ``1.0``
    agree, but ``true`` and ``"1"`` are others. Strings count letter by letter: a path or a name is no matter of
    spelling. Only what is the same by its form is: UUIDs in any case, instants in UTC, a letter with its accent.

    Args:
        calls: each with ``name`` and ``args``.
    """
    try:
        written = sorted(canonical({"name": call["name"], "args": call["args"]}) for call in calls)
    except (RecursionError, TypeError, ValueError):
        return None
    return f"[{', '.join(written)}]"


def canonical_calls(answer: str) -> str | None:
    """An answer that is a list of calls, in canonical form; None where it is anything else."""
    calls = _calls_in(answer)
    return None if calls is None else calls_answer(calls)


def kind_of(answer: str | None) -> str | None:
    """Which tools an answer calls that is a list of calls; None of any other answer."""
    calls = None if answer is None else _calls_in(answer)
    return None if calls is None else _kind(calls)


def arguments_of(answer: str) -> Mapping[str, str] | None:
    """The arguments of an answer that is a list of calls, ``tool.argument`` -> value as JSON; None of any other answer.

    They are named as in :class:`ToolVotes`. What goes by one name, as in several calls of one tool, is a list.
    """
    calls = _calls_in(answer)
    if calls is None:
        return None
    found: dict[str, list[str]] = {}
    for call in calls:
        for path, value in _leaves(call["args"], (call["name"],)):
            found.setdefault(".".join(path), []).append(canonical(value))
    return {name: values[0] if len(values) == 1 else canonical(sorted(values)) for name, values in found.items()}


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        for inner in value:
            yield from _leaves(inner, path)
    elif len(path) > 1:  # not that there are no arguments at all
        yield path, value


def _kind(calls: Iterable[Mapping[str, Any]]) -> str:
    return canonical(sorted(str(call["name"]) for call in calls))


def _calls_in(answer: str) -> list[dict[str, Any]] | None:
    if not (answer.startswith("[{") and answer.endswith("}]") and '"args"' in answer):
        return None
    try:
        calls = parse_json(answer)
    except ValueError:
        return None
    return calls if all(isinstance(call, dict) and call.keys() == {"name", "args"} for call in calls) else None


def _all_paired(agree: list[list[bool]]) -> bool:
    """Whether each call has a partner of its own among the others, shape (calls, calls)."""
    from scipy.sparse import csr_array  # deferred: heavy
    from scipy.sparse.csgraph import maximum_bipartite_matching

    return bool((maximum_bipartite_matching(csr_array(agree), perm_type="column") >= 0).all())
