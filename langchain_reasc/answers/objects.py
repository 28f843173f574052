"""Objects and lists as answers: structured output in texts and tool calls, compared as
JSON, whole or by field.

:func:`with_answer` writes an object that was assembled from several responses into one
of them.
"""

import json
from collections.abc import Callable, Collection, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, ToolCall
from pydantic import BaseModel, ValidationError

from langchain_reasc.answers.json_values import (
    REASONING,
    Names,
    Path,
    Structure,
    canonical,
    check_options,
    last_value,
    leaves,
    near,
    parsed_value,
)
from langchain_reasc.answers.schemas import (
    Schema,
    adapter_of,
    comparable,
    name_of_schema,
    read_value,
    refuses,
    unwrapped,
)
from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc.method.fields import WHOLE_LIST, field_name

REFUSED_OBJECT = "an object that its schema or check refuses"


class ValidObject(NamedTuple):
    """An object or a list that its schema accepts, as JSON values.

    Attributes:
        full: the validated value, with defaults and with the fields that are left out
            of the vote.
        comparable: the same value with equal values spelled alike.
    """

    full: Structure
    comparable: Any


@dataclass(frozen=True, kw_only=True)
class ObjectVotes:
    """How objects are compared. A field inside another object is named ``"a.b"``; a
    list is one value, also alone.

    Attributes:
        by_field: whether each field is decided separately, and the answer is assembled
            from them.
        leave_out: fields that do not count, at any depth and in any case, unless the
            object has no other fields.
        tolerance: field -> the largest difference at which two numbers still agree.
        voted: with ``by_field``, fields whose numbers are names, such as an id. They
            are voted on, while other numbers take their weighted median.
        schema: validates objects and fills in defaults. An object that it refuses casts
            no vote.
        check: returns whether an object (or a list, if that is the answer) makes sense,
            for example whether its sum is right. An object that it refuses casts no
            vote, and is never assembled as the answer.

    Raises:
        ConfigurationError: a tolerance is not a distance, a single string is given
            where several are expected, or the schema is unknown.
    """

    by_field: bool = False
    leave_out: Names = REASONING
    tolerance: Mapping[str, float] = field(default_factory=dict)
    voted: Names = ()
    schema: Schema | None = None
    check: Callable[[Any], bool] | None = None

    def __post_init__(self) -> None:
        check_options(self.tolerance, leave_out=self.leave_out, voted=self.voted)
        if isinstance(self.schema, type):
            adapter_of(self.schema)
        elif self.schema is not None and not isinstance(self.schema, Mapping):
            raise ConfigurationError(
                f"schema must be a dictionary or a class, got {self.schema!r}"
            )

    def __str__(self) -> str:
        """Return the name for messages and calibrations, which distinguishes one spec
        from another.
        """
        options = []
        if self.by_field:
            options.append("by_field")
        if self.schema is not None:
            options.append(f"schema={self.name or 'unnamed'}")
        if set(self.leave_out) != set(REASONING):
            options.append(f"leave_out={sorted(self.leave_out)}")
        if self.tolerance:
            options.append(f"tolerance={dict(sorted(self.tolerance.items()))}")
        if self.voted:
            options.append(f"voted={sorted(self.voted)}")
        if self.check is not None:
            options.append(f"check={getattr(self.check, '__name__', 'unnamed')}")
        return f"json({', '.join(options)})" if options else "json"

    @property
    def name(self) -> str | None:
        """The name of the schema, which is also the name of the tool that asks for it,
        or None.
        """
        return name_of_schema(self.schema)

    def same(self, first: str, second: str) -> bool:
        """Return whether two answers are the same, except for numbers within their
        tolerance. Not transitive.
        """
        if first == second or self.by_field or not self.tolerance:
            return first == second
        value = parsed_value(first)
        other = parsed_value(second)
        if value is None or other is None:
            return False
        return near(value, other, self.tolerance)

    def in_text(self, text: str, *, cut_off: bool = False) -> str | None:
        """Return the last object or list in a text as an answer, or None if there is
        none or it is refused.
        """
        last = last_value(text, cut_off=cut_off)
        if last is None:
            return None
        return self.answer(last.value)

    def in_calls(self, calls: list[ToolCall]) -> dict[str, Any] | None:
        """Return the object in calls that are structured output by function calling, or
        None for ordinary calls.

        The object is the arguments of a single call. If the schema has a name, the tool
        must have the same name.
        """
        if len(calls) != 1 or (self.name is not None and calls[0]["name"] != self.name):
            return None
        return calls[0]["args"]

    def answer(self, value: Structure) -> str | None:
        """Return a value as canonical JSON without the fields that are left out, or
        None if it is refused.
        """
        validated = self.validated(value)
        if validated is None:
            return None
        try:
            return self.spelled(validated)
        except RecursionError:
            return None

    def label(self, right: str) -> str:
        """Return the right answer, spelled as :meth:`answer` spells it if it is an
        object or a list.
        """
        value = parsed_value(right)
        if value is None:
            return right
        return self.answer(value) or right

    def fields(self, answer: str) -> dict[str, str]:
        """Return the fields of an answer, name -> value as canonical JSON; empty if the
        answer is not JSON.

        A list is the only field of its answer,
        :data:`~langchain_reasc.method.fields.WHOLE_LIST`.
        """
        value = parsed_value(answer)
        if isinstance(value, list):
            return {WHOLE_LIST: answer}
        fields = {}
        for path, leaf in leaves(value or {}):
            if path:
                fields[field_name(path)] = canonical(leaf)
        return fields

    def accepts(self, answer: str) -> bool:
        """Return whether the schema allows an answer, ignoring the fields that are left
        out.
        """
        value = parsed_value(answer)
        if value is None or self.schema is None:
            return value is not None
        if isinstance(self.schema, Mapping):
            schema = _without_required(unwrapped(self.schema), self._left_out)
            return not refuses(schema, value)
        try:
            adapter_of(self.schema).validate_python(value)
        except ValidationError as error:
            return all(
                fault["type"] == "missing"
                and str(fault["loc"][-1]).casefold() in self._left_out
                for fault in error.errors()
            )
        except Exception:  # a validator of the user's may raise anything
            return False
        return True

    def validated(self, value: Structure) -> "ValidObject | None":
        """Validate an object or a list and fill in defaults; return None if the schema
        or the check refuses it.
        """
        valid = self._as_schema_has_it(value)
        if valid is None or self.check is None:
            return valid
        try:
            return valid if self.check(valid.full) else None
        except Exception:  # a check of the user's may raise anything
            return None

    def _as_schema_has_it(self, value: Structure) -> "ValidObject | None":
        if self.schema is None:
            return ValidObject(copy(value), value)
        if isinstance(self.schema, Mapping):
            schema = unwrapped(self.schema)
            if refuses(schema, value):
                return None
            full = copy(read_value(copy(value), schema))
            spelled = read_value(full, schema, defaults=False, formats=True)
            return ValidObject(full, spelled)
        adapter = adapter_of(self.schema)
        try:
            instance = adapter.validate_python(value)
            full = adapter.dump_python(
                instance, mode="json", by_alias=True, round_trip=True
            )
            if not isinstance(full, dict | list):
                return None
            return ValidObject(full, comparable(adapter, instance))
        except Exception:  # a validator of the user's may raise anything
            return None

    def spelled(self, valid: "ValidObject") -> str:
        """Return a validated object as canonical JSON, without the fields that are left
        out of the vote.

        Raises:
            RecursionError: the object is nested too deeply.
        """
        return canonical(self.compared(valid.comparable))

    def compared(self, value: Any, path: Path = ()) -> Any:
        """Return a value without the fields that are left out of the vote."""
        if isinstance(value, dict):
            keys = [key for key in value if not self.is_left_out((*path, key))]
            # An object with no other fields is compared by those.
            if not keys and not path:
                keys = list(value)
            return {key: self.compared(value[key], (*path, key)) for key in keys}
        if isinstance(value, list):
            return [self.compared(item, path) for item in value]
        return value

    def is_left_out(self, path: Path) -> bool:
        """Return whether the field at these keys is left out of the vote."""
        names = {path[-1].casefold(), ".".join(path).casefold()}
        return not names.isdisjoint(self._left_out)

    @cached_property
    def _left_out(self) -> frozenset[str]:
        return frozenset(name.casefold() for name in self.leave_out)


def _without_required(schema: Any, names: Collection[str]) -> Any:
    """Return the schema without these names among its required fields."""
    if isinstance(schema, list):
        return [_without_required(inner, names) for inner in schema]
    if not isinstance(schema, Mapping):
        return schema
    relieved = {key: _without_required(inner, names) for key, inner in schema.items()}
    required = schema.get("required")
    if isinstance(required, list):
        relieved["required"] = [
            name for name in required if str(name).casefold() not in names
        ]
    return relieved


# Writing an object into a message


def with_answer(
    message: AIMessage, answer: str, votes: ObjectVotes
) -> AIMessage | None:
    """Return a copy of a message with another object or list as its answer. Fields that
    do not count keep their values.

    It is written to every place where the message has one: the text, all copies of a
    tool call's arguments, and what a client has parsed
    (``additional_kwargs["parsed"]``). None if the message has no object or list, or if
    the schema refuses the one to write.
    """
    value = _full_value(message, answer, votes)
    if value is None:
        return None
    if votes.in_calls(message.tool_calls) is None:
        update = _update_of_text(message, value)
    elif isinstance(value, dict):
        update = _update_of_call(message, value)
    else:
        return None
    if update is None:
        return None
    beside = update.setdefault("additional_kwargs", dict(message.additional_kwargs))
    parsed = beside.get("parsed")
    if isinstance(parsed, BaseModel):
        try:
            beside["parsed"] = type(parsed).model_validate(value)
        except Exception:  # a validator of the user's may raise anything
            return None
    elif parsed is not None:
        beside["parsed"] = value
    return message.model_copy(update=update)


def _full_value(
    message: AIMessage, answer: str, votes: ObjectVotes
) -> Structure | None:
    """Return the value to write, with the message's own values of fields that do not
    count, or None if impossible.
    """
    old: Structure | None = votes.in_calls(message.tool_calls)
    if old is None and (last := last_value(str(message.text))):
        old = last.value
    new = parsed_value(answer)
    if old is None or new is None:
        return None
    valid = votes.validated(old)
    if valid is None:
        return None
    merged = votes.validated(_merged(valid.full, new, votes))
    # The schema may have made another answer of it.
    if merged is None or votes.spelled(merged) != answer:
        return None
    return merged.full


def _merged(old: Any, new: Any, votes: ObjectVotes, path: Path = ()) -> Any:
    """Return the new value with the old value's fields that do not count."""
    if canonical(votes.compared(old, path)) == canonical(new):
        return old
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    merged = {}
    for key, item in old.items():  # whose order stays
        if key in new:
            merged[key] = _merged(item, new[key], votes, (*path, key))
        elif votes.is_left_out((*path, key)):
            merged[key] = item
    for key, item in new.items():
        merged.setdefault(key, item)
    return merged


def _update_of_text(message: AIMessage, value: Structure) -> dict[str, Any] | None:
    if isinstance(message.content, str):
        text = _with_last_value(message.content, value)
        return {"content": text} if text else None
    blocks: list[Any] = list(message.content)
    for index, block in reversed(list(enumerate(blocks))):
        is_string = isinstance(block, str)
        if not is_string and block.get("type") != "text":
            continue
        text = _with_last_value(block if is_string else block.get("text"), value)
        if text:
            blocks[index] = text if is_string else {**block, "text": text}
            return {"content": blocks}
    return None


def _with_last_value(text: Any, value: Structure) -> str | None:
    """Return a text with another value in place of its last one, or None if it has
    none.
    """
    if not isinstance(text, str):
        return None
    last = last_value(text)
    if last is None:
        return None
    written = json.dumps(value, ensure_ascii=False)
    return f"{text[: last.start]}{written}{text[last.end :]}"


def _update_of_call(message: AIMessage, value: dict[str, Any]) -> dict[str, Any]:
    [call] = message.tool_calls
    update: dict[str, Any] = {"tool_calls": [{**call, "args": value}]}
    for name in ("content", "tool_call_chunks"):
        if hasattr(message, name):
            update[name] = _with_arguments(getattr(message, name), call["id"], value)
    beside = update["additional_kwargs"] = dict(message.additional_kwargs)
    if "tool_calls" in beside:
        beside["tool_calls"] = _with_arguments(beside["tool_calls"], call["id"], value)
    if isinstance(beside.get("function_call"), Mapping):
        beside["function_call"] = _with_argument(beside["function_call"], value)
    return update


def _with_arguments(blocks: Any, id: str | None, value: dict[str, Any]) -> Any:
    """Return content blocks with new arguments for the call with this id; return
    anything but a list as it is.
    """
    if not isinstance(blocks, list) or id is None:
        return blocks
    changed = list(blocks)
    for index, block in enumerate(blocks):
        if isinstance(block, dict) and id in (block.get("id"), block.get("call_id")):
            changed[index] = _with_argument(block, value)
    return changed


def _with_argument(call: Mapping[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    changed = dict(call)
    if isinstance(call.get("function"), Mapping):
        changed["function"] = _with_argument(call["function"], value)
        return changed
    # The names of Anthropic, also streamed, of LangChain and of OpenAI.
    for name in ("input", "partial_json", "args", "arguments"):
        if isinstance(call.get(name), str):
            changed[name] = json.dumps(value, ensure_ascii=False)
        elif name in call:
            changed[name] = value
    return changed
