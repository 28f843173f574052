"""Answers with parts, and how they compare: calls of tools (:class:`ToolVotes`), JSON objects (:class:`ObjectVotes`).

Both are canonical JSON, without the parts in which a model thinks aloud. :func:`with_answer` writes an object that was
put together from several responses into one of them.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from langchain_core.messages import AIMessage, ToolCall
from pydantic import BaseModel, TypeAdapter, ValidationError

from langchain_reasc.answers.json_values import (
    REASONING,
    Names,
    canonical,
    check_options,
    last_object,
    named,
    names_of,
    near,
    parsed_object,
)
from langchain_reasc.answers.schemas import (
    ANY_TOOL,
    Schema,
    Schemas,
    name_of_schema,
    names_in,
    read,
    refuses,
    unwrapped,
)
from langchain_reasc.complaints import nearest
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.fields import ByField, field_name
from langchain_reasc.method.stopping import StoppingRule
from langchain_reasc.untrusted import parse_json

__all__ = [
    "REFUSED_CALLS",
    "REFUSED_OBJECT",
    "UNKNOWN_TOOL",
    "ObjectVotes",
    "ToolVotes",
    "arguments_of",
    "canonical_calls",
    "kind_of",
    "whole_object",
    "with_answer",
]

REFUSED_CALLS = "calls that the tool's schema refuses"
REFUSED_OBJECT = "an object that its schema refuses"
UNKNOWN_TOOL = "calls of an unknown tool"

Path = tuple[str, ...]

# Calls of tools

_NORMALIZERS: Final[dict[str, Callable[[str], str]]] = {
    "casefold": lambda text: " ".join(text.split()).casefold(),
    "whitespace": lambda text: " ".join(text.split()),
}


@dataclass(frozen=True, kw_only=True)
class ToolVotes:
    """How calls of tools are compared.

    An argument is named ``"city"``; one of a certain tool ``"weather.city"``; one inside another ``"filter.date"``,
    whether or not lists are between them; or all of it, ``"search.filter.date"``.

    Attributes:
        exclude_args: arguments that are left out of the vote; of every tool, or tool -> arguments. By default those in
            which a model thinks aloud, such as ``reasoning``.
        tolerance: argument -> how far, at most, its number is from another that it agrees with.
        normalize: argument -> what spells its strings before they are compared: a function, or ``"casefold"`` (white
            space too) or ``"whitespace"``.
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
        check_options(self.tolerance, exclude_args=self.exclude_args)
        for name in self.normalize.values():
            if not callable(name) and name not in _NORMALIZERS:
                known = ", ".join(_NORMALIZERS)
                raise ConfigurationError(f"normalize takes a function, or one of {known}, got {name!r}")

    def misnamed(self, schemas: Schemas) -> list[str]:
        """Return what the options name that no tool has, each in a sentence with the argument that may be meant.

        Where a tool takes arguments that its schema does not name, only what is spelled almost as one that it does.

        Args:
            schemas: as in :meth:`refused`.
        """
        excluded = self.exclude_args
        if isinstance(excluded, Mapping):
            excluded = [f"{tool}.{name}" for tool, names in excluded.items() for name in names]
        given = [("exclude_args", name) for name in excluded if name not in REASONING]
        given += [(option, name) for option in ("tolerance", "normalize") for name in getattr(self, option)]
        if not given:
            return []
        known, free = names_in(schemas)
        tools = ", ".join(sorted(schemas))
        complaints = []
        for option, name in given:
            meant, is_known = _meant(name, sorted(known), free)
            if not is_known:
                hint = f"; did you mean {meant!r}?" if meant else ""
                complaints.append(
                    f"tool_votes: {option} names {name!r}, an argument that no tool here has ({tools}){hint}"
                )
        return complaints

    def refused(self, calls: Iterable[Mapping[str, Any]], schemas: Schemas | None) -> str | None:
        """Return why these calls cast no vote; None where nothing is known against them.

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
        """Return the calls as canonical JSON, with the defaults of their schemas; None where they have no such form.

        Calls are sorted, and so are their arguments; ids are dropped; a number is a number, so that ``1`` and ``1.0``
        agree, but ``true`` and ``"1"`` are others. Strings count letter by letter: a path or a name is no matter of
        spelling. Only what is the same by its form is: UUIDs in any case, instants in UTC, a letter with its accent.

        Args:
            calls: each with ``name`` and ``args``.
            schemas: as in :meth:`refused`.
        """
        return _written_calls((call["name"], self._compared(call["name"], self.read(call, schemas))) for call in calls)

    def read(self, call: Mapping[str, Any], schemas: Schemas | None) -> Any:
        """Return the arguments of a call as its tool has them: with defaults, equal dates or numbers spelled alike."""
        schema = (schemas or {}).get(call["name"])
        return read(call["args"], schema, formats=True) if schema else call["args"]

    def kind(self, calls: Iterable[Mapping[str, Any]]) -> str | None:
        """Return which tools are called, and how often each; None where calls are voted on as a whole."""
        return _kind(calls) if self.hierarchical else None

    def label(self, right: str, schemas: Schemas | None = None) -> str:
        """Return the right answer in the spelling of :meth:`answer` where it is a list of calls; else as it is."""
        calls = _calls_in(right)
        return right if calls is None else self.answer(calls, schemas) or right

    def same(self, one: str, other: str) -> bool:
        """Return whether two answers are the same calls, with numbers within the tolerance. It is not transitive."""
        if one == other or not self.tolerance:
            return one == other
        calls, others = _calls_in(one), _calls_in(other)
        if calls is None or others is None or len(calls) != len(others):
            return False
        agree = [[self._agree(call, another) for another in others] for call in calls]
        return agree[0][0] if len(calls) == 1 else _all_paired(agree)

    def _compared(self, tool: str, value: Any, path: Path = ()) -> Any:
        """Return the arguments without what is left out of the vote, strings normalized."""
        if isinstance(value, Mapping):
            inner = {str(key): (one, (*path, str(key))) for key, one in value.items()}
            return {key: self._compared(tool, *at) for key, at in inner.items() if not self._is_excluded(tool, at[1])}
        if isinstance(value, list | tuple):
            return [self._compared(tool, one, path) for one in value]
        if isinstance(value, str) and (how := named(self.normalize, path, tool)) is not None:
            return how(value) if callable(how) else _NORMALIZERS[how](value)
        return value

    def _is_excluded(self, tool: str, path: Path) -> bool:
        if isinstance(self.exclude_args, Mapping):
            return ".".join(path) in self.exclude_args.get(tool, ())
        return not names_of(path, tool).isdisjoint(self.exclude_args)

    def _agree(self, call: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        tool = call["name"]
        return tool == other["name"] and near(call["args"], other["args"], self.tolerance, tool=tool)


def canonical_calls(answer: str) -> str | None:
    """Return an answer that is a list of calls in canonical form; None where it is anything else."""
    calls = _calls_in(answer)
    return None if calls is None else _written_calls((call["name"], call["args"]) for call in calls)


def kind_of(answer: str | None) -> str | None:
    """Return which tools an answer calls that is a list of calls; None of any other answer."""
    calls = None if answer is None else _calls_in(answer)
    return None if calls is None else _kind(calls)


def arguments_of(answer: str) -> Mapping[str, str] | None:
    """Return the arguments of an answer that is a list of calls, ``tool.argument`` -> value as JSON; else None.

    They are named as in :class:`ToolVotes`. What goes by one name, as in several calls of one tool, is a list.
    """
    calls = _calls_in(answer)
    if calls is None:
        return None
    found: dict[str, list[str]] = {}
    for call in calls:
        for path, value in _leaves(call["args"], (call["name"],), into_lists=True):
            if len(path) > 1:  # not that there are no arguments at all
                found.setdefault(".".join(path), []).append(canonical(value))
    return {name: values[0] if len(values) == 1 else canonical(sorted(values)) for name, values in found.items()}


def _meant(name: str, known: list[str], free: Collection[str]) -> tuple[str | None, bool]:
    """Return the argument that a name may mean, and whether the name may be left as it is."""
    if name in known or any(inside and name.startswith(f"{inside}.") for inside in free):
        return name, True
    meant = next((one for one in known if one.endswith(f".{name}")), None) or nearest(name, known)
    return meant, meant is None and "" in free


def _kind(calls: Iterable[Mapping[str, Any]]) -> str:
    return canonical(sorted(str(call["name"]) for call in calls))


def _written_calls(calls: Iterable[tuple[str, Any]]) -> str | None:
    try:
        return f"[{', '.join(sorted(canonical({'name': name, 'args': args}) for name, args in calls))}]"
    except (RecursionError, TypeError, ValueError):
        return None


def _calls_in(answer: str) -> list[dict[str, Any]] | None:
    if not (answer.startswith("[{") and answer.endswith("}]") and '"args"' in answer):
        return None
    try:
        calls = parse_json(answer)
    except ValueError:
        return None
    return calls if all(isinstance(call, dict) and call.keys() == {"name", "args"} for call in calls) else None


def _all_paired(agree: list[list[bool]]) -> bool:
    """Return whether each call has a partner of its own among the others, shape (calls, calls)."""
    from scipy.sparse import csr_array  # deferred: heavy
    from scipy.sparse.csgraph import maximum_bipartite_matching

    return bool((maximum_bipartite_matching(csr_array(agree), perm_type="column") >= 0).all())


def _leaves(value: Any, path: Path = (), *, into_lists: bool = False) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key), into_lists=into_lists)
    elif into_lists and isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        for inner in value:
            yield from _leaves(inner, path, into_lists=True)
    else:
        yield path, value


# Objects

_FENCED = re.compile(r"\s*```\w*\s*\n(.*)\n\s*```\s*", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class ObjectVotes:
    """How objects are compared. A field inside another object is named ``"a.b"``; a list is one value.

    Attributes:
        by_field: whether each field is decided on its own, and the answer put together from them.
        leave_out: fields that do not count, at any depth, whatever their case; they do where an object has no others.
        tolerance: field -> how far, at most, its number is from another that it agrees with.
        voted: by field, those whose numbers are names, such as an id: they are voted on, where other numbers take their
            weighted median.
        schema: what objects are validated by. It fills in defaults, and those it refuses cast no vote.

    Raises:
        ConfigurationError: a tolerance that is no distance, a string where several are expected, an unknown schema.
    """

    by_field: bool = False
    leave_out: Names = REASONING
    tolerance: Mapping[str, float] = field(default_factory=dict)
    voted: Names = ()
    schema: Schema | None = None

    def __post_init__(self) -> None:
        check_options(self.tolerance, leave_out=self.leave_out, voted=self.voted)
        if isinstance(self.schema, type):
            _adapter(self.schema)
        elif self.schema is not None and not isinstance(self.schema, Mapping):
            raise ConfigurationError(f"a schema is a dictionary or a class, got {self.schema!r}")

    def __str__(self) -> str:
        """Return the name shown in messages, by which calibrations tell one spec from another."""
        options = {
            "by_field": self.by_field,
            f"schema={self.name or 'unnamed'}": self.schema is not None,
            f"leave_out={sorted(self.leave_out)}": set(self.leave_out) != set(REASONING),
            f"tolerance={dict(sorted(self.tolerance.items()))}": bool(self.tolerance),
            f"voted={sorted(self.voted)}": bool(self.voted),
        }
        said = ", ".join(option for option, given in options.items() if given)
        return f"json({said})" if said else "json"

    @property
    def name(self) -> str | None:
        """What the schema is named, and the tool by which it is asked for; None where it has no name."""
        return name_of_schema(self.schema)

    def rule(self, rule: StoppingRule) -> StoppingRule:
        """Return the rule as it decides on such objects: by field, or as it is."""
        return ByField(rule, self.tolerance, tuple(self.voted), self.accepts) if self.by_field else rule

    def same(self, one: str, other: str) -> bool:
        """Return whether two answers are the same but for numbers within their tolerance. It is not transitive."""
        if one == other or self.by_field or not self.tolerance:
            return one == other
        a, b = parsed_object(one), parsed_object(other)
        return a is not None and b is not None and near(a, b, self.tolerance)

    def in_text(self, text: str, *, cut_off: bool = False) -> str | None:
        """Return the answer that the last object in a text is; None without one, and where it is refused."""
        found = last_object(text, cut_off=cut_off)
        return None if found is None else self.answer(found.value)

    def in_calls(self, calls: list[ToolCall]) -> dict[str, Any] | None:
        """Return the object that these calls give (structured output by function calling); None for ordinary ones.

        It is the argument of a single call, of the tool that is named as the schema is, where that has a name.
        """
        if len(calls) != 1 or (self.name is not None and calls[0]["name"] != self.name):
            return None
        return calls[0]["args"]

    def answer(self, value: Mapping[str, Any]) -> str | None:
        """Return an object as canonical JSON, without what is left out; None where it is refused."""
        full = self.validated(value)
        try:
            return None if full is None else self.spelled(full)
        except RecursionError:
            return None

    def label(self, right: str) -> str:
        """Return the right answer in the spelling of :meth:`answer`; what is no object as it is."""
        value = parsed_object(right)
        return (None if value is None else self.answer(value)) or right

    def fields(self, answer: str) -> dict[str, str]:
        """Return the fields of an answer, name -> value as canonical JSON; none of what is no object."""
        return {field_name(path): canonical(leaf) for path, leaf in _leaves(parsed_object(answer) or {}) if path}

    def accepts(self, answer: str) -> bool:
        """Return whether the schema allows an answer, whatever it says of the fields that are left out."""
        value = parsed_object(answer)
        if value is None or self.schema is None:
            return value is not None
        if isinstance(self.schema, Mapping):
            schema = _without_required(unwrapped(self.schema), self._left_out)
            return not refuses(schema, read(value, schema, defaults=False))
        try:
            _adapter(self.schema).validate_python(value)
        except ValidationError as error:
            missing = [str(one["loc"][-1]) for one in error.errors(include_url=False) if one["type"] == "missing"]
            return len(missing) == error.error_count() and self._left_out.issuperset(map(str.casefold, missing))
        except Exception:
            return False
        return True

    def validated(self, value: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return an object as its schema has it, with defaults and all that is left out; None where it is refused."""
        if self.schema is None:
            return dict(value)
        if isinstance(self.schema, Mapping):
            schema = unwrapped(self.schema)
            refused = refuses(schema, read(value, schema, defaults=False))
            return None if refused else dict(read(dict(value), schema))
        adapter = _adapter(self.schema)
        try:
            full = adapter.dump_python(adapter.validate_python(value), mode="json", by_alias=True, round_trip=True)
        except Exception:  # a validator of the user's may raise anything
            return None
        return full if isinstance(full, dict) else None

    def spelled(self, value: Mapping[str, Any]) -> str:
        """Return a validated object as it is compared: canonical JSON, strings of a format in one spelling.

        Raises:
            RecursionError: it is nested too deeply.
        """
        schema = unwrapped(self.schema) if isinstance(self.schema, Mapping) else _json_schema(self.schema)
        return canonical(self.compared(read(value, schema, defaults=False, formats=True)))

    def compared(self, value: Any, path: Path = ()) -> Any:
        """Return a value without what is left out of the vote."""
        if isinstance(value, dict):
            kept = {key: one for key, one in value.items() if not self.is_left_out((*path, key))}
            kept = value if not kept and not path else kept  # it is all there is
            return {key: self.compared(one, (*path, key)) for key, one in kept.items()}
        return [self.compared(one, path) for one in value] if isinstance(value, list) else value

    def is_left_out(self, path: Path) -> bool:
        """Return whether the field that these keys lead to does not count."""
        return not {path[-1].casefold(), ".".join(path).casefold()}.isdisjoint(self._left_out)

    @property
    def _left_out(self) -> frozenset[str]:
        return frozenset(name.casefold() for name in self.leave_out)


def whole_object(text: str) -> dict[str, Any] | None:
    """Return the object that a text is, in a code block or not; None where there is anything else in it."""
    fenced = _FENCED.fullmatch(text)
    return parsed_object((fenced[1] if fenced else text).strip())


def _without_required(schema: Any, names: Collection[str]) -> Any:
    """Return the schema without its demand for fields of these names."""
    if isinstance(schema, list):
        return [_without_required(inner, names) for inner in schema]
    if not isinstance(schema, Mapping):
        return schema
    relieved = {key: _without_required(inner, names) for key, inner in schema.items()}
    if isinstance(required := schema.get("required"), list):
        relieved["required"] = [name for name in required if str(name).casefold() not in names]
    return relieved


@lru_cache(maxsize=64)
def _json_schema(schema: type | None) -> Mapping[str, Any]:
    """Return the JSON schema of a class; empty where it has none."""
    try:
        return {} if schema is None else _adapter(schema).json_schema()
    except Exception:  # it has a type of the user's own that JSON schema knows nothing of
        return {}


@lru_cache(maxsize=64)
def _adapter(schema: type) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(schema)
    except Exception as error:
        raise ConfigurationError(f"pydantic cannot validate by {schema!r}: {error}") from error


# Writing an object into a message


def with_answer(message: AIMessage, answer: str, votes: ObjectVotes) -> AIMessage | None:
    """Return a copy of a message that gives another object as its answer, and keeps its fields that do not count.

    It is written wherever the message has its object: in the text, or in the arguments of its tool call with all copies
    of them, and in what a client has parsed (``additional_kwargs["parsed"]``).

    Args:
        message: a response whose answer is an object.
        answer: the object to give, as a decision by field has it.
        votes: how objects are compared, and validated.

    Returns:
        None where the message has no object, or where the schema refuses the one that would be written.
    """
    decided, old = parsed_object(answer), votes.in_calls(message.tool_calls)
    written = _update_of_text if old is None else _update_of_call
    if old is None and (found := last_object(str(message.text))):
        old = found.value
    full = None if old is None else votes.validated(old)
    value = None if full is None or decided is None else votes.validated(_merged(full, decided, votes))
    if value is None or votes.spelled(value) != answer or (update := written(message, value)) is None:
        return None
    if (parsed := message.additional_kwargs.get("parsed")) is not None:
        try:
            parsed = _as_parsed(value, parsed)
        except Exception:  # a validator of the user's may raise anything
            return None
        beside = update.get("additional_kwargs", message.additional_kwargs)
        update["additional_kwargs"] = {**beside, "parsed": parsed}
    return message.model_copy(update=update)


def _as_parsed(value: dict[str, Any], parsed: Any) -> Any:
    return type(parsed).model_validate(value) if isinstance(parsed, BaseModel) else value


def _merged(old: Any, new: Any, votes: ObjectVotes, path: Path = ()) -> Any:
    """Return the new value, with what does not count as it was."""
    if canonical(votes.compared(old, path)) == canonical(new):
        return old
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    kept = {key: one for key, one in old.items() if key in new or votes.is_left_out((*path, key))}
    changed = {key: _merged(old[key], one, votes, (*path, key)) if key in old else one for key, one in new.items()}
    return kept | changed  # in the order of the old one


def _update_of_text(message: AIMessage, value: dict[str, Any]) -> dict[str, Any] | None:
    blocks = [message.content] if isinstance(message.content, str) else list(message.content)
    for at, block in reversed(list(enumerate(blocks))):
        text = block if isinstance(block, str) else block.get("text") if block.get("type") == "text" else None
        if isinstance(text, str) and (found := last_object(text)):
            text = text[: found.start] + json.dumps(value, ensure_ascii=False) + text[found.end :]
            blocks[at] = text if isinstance(block, str) else {**block, "text": text}
            return {"content": blocks[0] if isinstance(message.content, str) else blocks}
    return None


def _update_of_call(message: AIMessage, value: dict[str, Any]) -> dict[str, Any] | None:
    [call] = message.tool_calls
    beside = dict(message.additional_kwargs)
    if "tool_calls" in beside:
        beside["tool_calls"] = _with_arguments(beside["tool_calls"], call["id"], value)
    if isinstance(raw := beside.get("function_call"), Mapping):
        beside["function_call"] = {**raw, "arguments": json.dumps(value, ensure_ascii=False)}
    update: dict[str, Any] = {"tool_calls": [{**call, "args": value}], "additional_kwargs": beside}
    for name in ("content", "tool_call_chunks"):
        if hasattr(message, name):
            update[name] = _with_arguments(getattr(message, name), call["id"], value)
    return update


def _with_arguments(blocks: Any, id: str | None, value: dict[str, Any]) -> Any:
    """Return blocks in which the call with this id has other arguments, in whatever words; what is no list as it is."""
    if not isinstance(blocks, list) or id is None:
        return blocks
    text, written = json.dumps(value, ensure_ascii=False), []
    for block in blocks:
        if isinstance(block, dict) and id in (block.get("id"), block.get("call_id")):
            if isinstance(function := block.get("function"), Mapping):
                block = {**block, "function": {**function, "arguments": text}}
            else:
                given = [
                    name for name in ("input", "args", "arguments") if name in block
                ]  # Anthropic, LangChain, OpenAI
                block = block | {name: text if isinstance(block[name], str) else value for name in given}
        written.append(block)
    return written
