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
        named = list(self._named())
        # To list the arguments of a class takes milliseconds.
        if not named:
            return []
        arguments: list[str] = []
        for tool, schema in schemas.items():
            names = arguments_in(schema)
            if names is None:
                return []
            arguments += [*names, *(f"{tool}.{name}" for name in names)]
        # The dot keeps "filter" from matching "filters".
        beginnings = tuple(f"{argument}." for argument in arguments)
        tools = ", ".join(sorted(schemas))
        complaints = []
        for option, name in named:
            if f"{name}.".startswith(beginnings):
                continue
            complaint = (
                f"tool_votes: {option} names {name!r}, an argument that no tool here "
                f"has ({tools})"
            )
            if meant := nearest(name, arguments):
                complaint += f"; did you mean {meant!r}?"
            complaints.append(complaint)
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
        for name in excluded:
            if name not in REASONING:
                yield "exclude_args", name
        for name in self.tolerance:
            yield "tolerance", name
        for name in self.normalize:
            yield "normalize", name

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
        received_calls = []
        for call in calls:
            schema = None
            if schemas is not None:
                schema = schemas.get(call["name"], schemas.get(ANY_TOOL))
                if schema is None and self.check_schema:
                    return UNKNOWN_TOOL
            args = received(call["args"], schema, check=self.check_schema)
            if args is None:
                return REFUSED_CALLS
            received_calls.append({"name": call["name"], "args": args})
        return received_calls

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
        spelled = []
        try:
            for call in calls:
                args = self._compared(call["name"], call["args"])
                spelled.append(canonical({"name": call["name"], "args": args}))
        except (RecursionError, TypeError, ValueError):
            return None
        return f"[{', '.join(sorted(spelled))}]"

    def kind(self, calls: Calls) -> str | None:
        """Return which tools are called and how often, or None if calls are voted on as
        a whole.
        """
        if not self.hierarchical:
            return None
        return _kind(calls)

    def label(self, right: str, schemas: Schemas | None = None) -> str:
        """Return the right answer, spelled as :meth:`answer` spells it if it is a list
        of calls.
        """
        calls = _calls_in(right)
        if calls is None:
            return right
        received = self.received(calls, schemas)
        if isinstance(received, str):
            return right
        return self.answer(received) or right

    def same(self, first: str, second: str) -> bool:
        """Return whether two answers are the same calls, with numbers within the
        tolerance. It is not transitive.
        """
        if first == second or not self.tolerance:
            return first == second
        calls = _calls_in(first)
        other_calls = _calls_in(second)
        if calls is None or other_calls is None or len(calls) != len(other_calls):
            return False
        agree = [
            [self._agree(call, other_call) for other_call in other_calls]
            for call in calls
        ]
        if len(calls) == 1:  # without importing scipy
            return agree[0][0]
        return _all_paired(agree)

    def _agree(self, call: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        if call["name"] != other["name"]:
            return False
        return near(call["args"], other["args"], self.tolerance, call["name"])

    def _compared(self, tool: str, value: Any, path: Path = ()) -> Any:
        """Return the arguments that count for the vote, with normalized strings."""
        if isinstance(value, Mapping):
            compared = {}
            for key, item in value.items():
                item_path = (*path, str(key))
                if not self._is_excluded(tool, item_path):
                    compared[str(key)] = self._compared(tool, item, item_path)
            return compared
        if isinstance(value, list | tuple):
            return [self._compared(tool, item, path) for item in value]
        if isinstance(value, str):
            normalize = option_for(self.normalize, path, tool)
            if isinstance(normalize, str):
                normalize = _NORMALIZERS[normalize]
            if normalize is not None:
                return normalize(value)
        return value

    def _is_excluded(self, tool: str, path: Path) -> bool:
        if isinstance(self.exclude_args, Mapping):
            return ".".join(path) in self.exclude_args.get(tool, ())
        return not set(names_of(path, tool)).isdisjoint(self.exclude_args)


def kind_of(answer: str | None) -> str | None:
    """Return which tools an answer calls, or None if the answer is not a list of calls."""
    calls = _calls_in(answer or "")
    if calls is None:
        return None
    return _kind(calls)


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
    arguments = {}
    for name, values in by_tool.items():
        arguments[name] = canonical(sorted(values)) if len(values) > 1 else values[0]
    return arguments


def _kind(calls: Calls) -> str:
    return canonical(sorted(str(call["name"]) for call in calls))


def _calls_in(answer: str) -> list[dict[str, Any]] | None:
    # Most answers are not calls, and parsing them would take longer.
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
