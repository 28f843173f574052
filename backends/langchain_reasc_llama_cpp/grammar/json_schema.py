"""JSON Schema to GBNF, by llama.cpp's converter as llama-cpp-python ships it, with what that port gets wrong.

The port lags behind llama.cpp's own (C++) converter: it lets raw control characters into strings, does not escape
backslashes, unrolls ``maxLength`` into nested parentheses, mixes up equal names, and forgets constraints beside a list
of types. Import this module only where llama-cpp-python is known to be installed.
"""

import json
from typing import Any, Final
from urllib.parse import unquote

from llama_cpp.llama_grammar import DOT, PRIMITIVE_RULES, SchemaConverter

from langchain_reasc.exceptions import ConfigurationError
from langchain_reasc_llama_cpp.grammar.regex_pattern import as_json_string_pattern

__all__ = ["SchemaRules"]

_MAX_REPETITIONS: Final = 2000  # llama.cpp refuses a grammar that repeats more often than that
_MAX_ENUMERATED: Final = 256
_HEX: Final = "[0-9a-fA-F]"
_SAYS_NOTHING: Final = {
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$comment",
}
_FAILURES: Final = (AssertionError, ValueError, LookupError, TypeError, AttributeError, RecursionError)

# Strings without raw control characters or lone surrogates, numbers that do not overflow a double.
_PLAIN: Final = r"[\x20-\x21\x23-\x5B\x5D-\x7E\u0080-\uD7FF\uE000-\uFFFF\U00010000-\U0010FFFF]"
_CHARACTER: Final = rf'{_PLAIN} | "\\" (["\\/bfnrt] | "u" ([0-9a-cA-CefEF] {_HEX}{{3}} | [dD] [0-7] {_HEX}{{2}}))'
_BETTER: Final = {
    PRIMITIVE_RULES["char"].content: _CHARACTER,
    PRIMITIVE_RULES["number"].content: ('("-"? integral-part) ("." decimal-part)? ([eE] [-+]? [0-9] [0-9]?)? space'),
    DOT: _PLAIN,
}


class SchemaRules(SchemaConverter):  # type: ignore[misc]
    """GBNF rules for one or more JSON schemas."""

    def __init__(self) -> None:
        super().__init__(prop_order={}, allow_fetch=False, dotall=False, raw_pattern=False)
        self._schema: Any = None  # that references point into
        self._names: dict[str, str] = {}  # of the rules they stand for
        self._references = 0

    def add(self, schema: dict[str, Any], name: str) -> str:
        """Add the rules of a schema.

        Args:
            schema: JSON Schema, which is not changed; its ``$ref`` may point into itself only.
            name: the name of the schema's rule, such as "response".

        Returns:
            The rule to refer to.

        Raises:
            ConfigurationError: a part of the schema cannot be a grammar.
        """
        self._schema, self._names = schema, {}
        rule: str = self.visit(schema, name)
        return rule

    def add_call(self, name: str, key: str, arguments: str) -> str:
        """Add the object that calls a tool, given the key and the rule of its arguments."""
        named = self._generate_constant_rule(name)
        members = rf'"\"name\"" space ":" space {named} space "," space "\"{key}\"" space ":" space {arguments}'
        rule: str = self._add_rule(f"call-{len(self._rules)}", '"{" space ' + members + ' "}"')
        return rule

    def text(self, root: str, **rules: str) -> str:
        """The whole grammar, beginning with ``root``; further rules by name."""
        own = "\n".join(f"{name} ::= {rule}" for name, rule in rules.items())
        return f"root ::= {root}\n{own}\n{self.format_grammar()}\n"

    def visit(self, schema: Any, name: str) -> Any:
        """Add one schema's rules; see :meth:`add`."""
        try:
            return self._visit(schema, name)
        except _FAILURES as error:
            if isinstance(error, ConfigurationError):
                raise
            part = json.dumps(schema, default=str)
            part = part if len(part) <= 200 else part[:200] + " ..."
            raise ConfigurationError(
                f"no grammar can be made of this part of the JSON schema ({name}): {part}: {error or repr(error)}; "
                "simplify it, or use method='json_mode' and check the output yourself"
            ) from error

    def _visit(self, schema: Any, name: str) -> Any:
        if schema is True or (isinstance(schema, dict) and not schema.keys() - _SAYS_NOTHING):
            return self._add_primitive("value", PRIMITIVE_RULES["value"])
        if not isinstance(schema, dict):
            raise ValueError(f"a JSON schema is a dict, not {type(schema).__name__}")
        if "allOf" in schema:
            parts = [self._referred(part["$ref"]) if "$ref" in part else part for part in schema["allOf"]]
            rest = {key: value for key, value in schema.items() if key != "allOf"}
            if len(parts) == 1:
                return self.visit(rest | parts[0], name)
            schema = rest | {"allOf": parts}
        if "$ref" in schema or "anyOf" in schema or "oneOf" in schema:
            return super().visit(schema, name)
        kind = schema.get("type")
        if "const" in schema or "enum" in schema:
            allowed = [schema["const"]] if "const" in schema else schema["enum"]
            return self._add_rule(name, " | ".join(self._generate_constant_rule(value) for value in allowed))
        if isinstance(kind, list):
            return self._add_rule(name, self._generate_union_rule(name, [schema | {"type": each} for each in kind]))
        if kind == "integer" and (values := _enumerable(schema)):
            return self._add_rule(name, f"({' | '.join(json.dumps(str(value)) for value in values)}) space")
        if (
            kind == "string"
            and not schema.keys() & {"pattern", "format"}
            and schema.keys() & {"minLength", "maxLength"}
        ):
            character = self._add_primitive("char", PRIMITIVE_RULES["char"])
            least, most = _bounds(schema, "Length")
            return self._add_rule(name, rf'"\"" {character}{_repeat(least, most)} "\"" space')
        if kind in (None, "array") and isinstance(schema.get("items"), dict | bool) and not schema.get("prefixItems"):
            return self._array(schema, name)
        return super().visit(schema, name)

    def _array(self, schema: dict[str, Any], name: str) -> Any:
        least, most = _bounds(schema, "Items")
        if most == 0:
            return self._add_rule(name, '"[" space "]" space')
        item = self.visit(schema["items"], f"{name}-item")
        more = _repeat(max(0, least - 1), None if most is None else most - 1)
        items = f'{item} ("," space {item}){more}'
        return self._add_rule(name, f'"[" space {items if least else f"({items})?"} "]" space')

    def _visit_pattern(self, pattern: str, name: str) -> Any:
        return super()._visit_pattern(as_json_string_pattern(pattern), name)

    def _add_rule(self, name: str, rule: str) -> Any:
        return super()._add_rule(name, _BETTER.get(rule, rule))

    def _resolve_ref(self, ref: str) -> str:
        """The rule of a reference; not named by its last part, which may also be a property's name."""
        if ref not in self._names:
            self._references += 1
            self._names[ref] = name = f"ref-{self._references}"
            self._names[ref] = self.visit(self._referred(ref), name)
        return self._names[ref]

    def _referred(self, ref: str) -> Any:
        """What a reference points at."""
        if not ref.startswith("#"):
            raise ValueError(f"$ref {ref!r} points out of the schema; put the other schema into its $defs")
        found = self._schema
        for part in unquote(ref[1:]).split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            found = found[int(key)] if isinstance(found, list) else found[key]
        return found

    def _format_literal(self, literal: str) -> str:
        text = json.dumps(json.loads(literal), ensure_ascii=False)  # models write characters, not \u escapes
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _bounds(schema: dict[str, Any], what: str) -> tuple[int, int | None]:
    """How many characters or items are allowed; more than llama.cpp can count to is not bounded above."""
    least, most = int(schema.get(f"min{what}", 0)), schema.get(f"max{what}")
    if least > _MAX_REPETITIONS:
        raise ValueError(f"min{what} can be {_MAX_REPETITIONS:,} at most, got {least:,}")
    if most is not None and int(most) < least:
        raise ValueError(f"max{what} is {most}, below min{what} {least}")
    return least, None if most is None or int(most) > _MAX_REPETITIONS else int(most)


def _repeat(least: int, most: int | None) -> str:
    return f"{{{least},{'' if most is None else most}}}"


def _enumerable(schema: dict[str, Any]) -> range | None:
    """The values of an integer with a small range; None for any other."""
    least = schema.get("minimum", schema.get("exclusiveMinimum"))
    most = schema.get("maximum", schema.get("exclusiveMaximum"))
    if not isinstance(least, int) or not isinstance(most, int):
        return None
    values = range(least + ("minimum" not in schema), most + ("maximum" in schema))
    if not values:
        raise ValueError("no integer is within its bounds")
    return values if len(values) <= _MAX_ENUMERATED else None
