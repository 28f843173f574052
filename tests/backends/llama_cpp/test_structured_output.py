"""Structured output from random and real models, which write little that is sensible, but valid JSON."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import gguf
import pytest
from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage
from langchain_reasc_llama_cpp import ChatLlamaCpp
from langchain_reasc_llama_cpp.tools import Method, json_parser, tool_parser
from pydantic import BaseModel, Field, field_validator

from backends.llama_cpp.conftest import REAL_BY_GRAMMAR, real_options
from backends.llama_cpp.faces import Face, merged
from backends.llama_cpp.tiny_gguf import write_tiny_model
from backends.llama_cpp.tool_models import HERMES
from langchain_reasc.answers import ToolVotes, extractor, schemas_of, vote_of
from langchain_reasc.answers.calls import REFUSED_CALLS
from langchain_reasc.complaints import forget_warnings
from langchain_reasc.exceptions import ConfigurationError


class Person(BaseModel):
    """Somebody."""

    name: str = Field(max_length=5)
    age: int = Field(ge=0, le=120)
    mood: Literal["glad", "sad"]


class PersonDict(TypedDict):
    """Somebody."""

    age: Annotated[int, ..., "in years"]
    awake: bool


SCHEMA = {"title": "person", **{key: value for key, value in Person.model_json_schema().items() if key != "title"}}
FIELDS = {"name", "age", "mood"}
METHODS: list[Method] = ["json_schema", "function_calling"]


@pytest.fixture(scope="module", params=["random", *REAL_BY_GRAMMAR])
def model(request: pytest.FixtureRequest, tools_path: Path) -> Iterator[ChatLlamaCpp]:
    """Without cached prompts: what was decoded before would decide close draws on 4-bit weights."""
    random = {"model_path": tools_path, "chat_template": HERMES}
    options = random if request.param == "random" else real_options(request)
    with ChatLlamaCpp(**options | {"max_tokens": 400, "seed": 1, "cached_prompts": 0, "signals": ()}) as made:
        yield made


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("schema", "kind", "fields"),
    [(Person, Person, FIELDS), (SCHEMA, dict, FIELDS), (PersonDict, dict, {"age", "awake"})],
    ids=["class", "schema", "typed dict"],
)
def test_a_schema_gives_its_objects(
    model: ChatLlamaCpp, face: Face, method: Method, schema: Any, kind: type, fields: set[str]
) -> None:
    structured = model.with_structured_output(schema, method=method)
    made: Any = face.invoke(structured, "Who?")
    assert isinstance(made, kind) and set(dict(made)) == fields
    assert [type(each) for each in face.batch(structured, ["a"])] == [kind]
    pieces: list[Any] = face.stream(structured, "Who?")
    assert pieces[-1] == made
    if kind is dict:
        assert len(pieces) > 2
        assert all(set(piece) <= fields for piece in pieces)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}},
        {"name": "person", "description": "", "parameters": SCHEMA},
        {"type": "function", "function": {"name": "person", "description": "", "parameters": SCHEMA}},
        Person.model_json_schema(),
    ],
)
def test_openai_ways_to_write_a_schema(model: ChatLlamaCpp, schema: Any) -> None:
    made = model.with_structured_output(schema).invoke("Who?")
    assert Person(**made)


@pytest.mark.parametrize("method", METHODS)
def test_strict_asks_for_everything_and_the_raw_message_comes_along(model: ChatLlamaCpp, method: Method) -> None:
    class Open(BaseModel):
        """Something."""

        a: bool = True
        b: bool = True

    for seed in range(3):
        made = model.with_structured_output(Open, method=method, strict=True, seed=seed, include_raw=True).invoke("x")
        [call] = made["raw"].tool_calls or [{"args": json.loads(made["raw"].text or "{}")}]
        assert set(call["args"]) == {"a", "b"}
        assert isinstance(made["parsed"], Open) and made["parsing_error"] is None


@pytest.mark.parametrize("schema", [Person, SCHEMA], ids=["class", "schema"])
@pytest.mark.parametrize(("method", "limit"), [("json_schema", 9), ("function_calling", 20)])
def test_what_is_cut_off_says_so(model: ChatLlamaCpp, face: Face, schema: Any, method: Method, limit: int) -> None:
    cut = model.with_structured_output(schema, method=method, max_tokens=limit)
    for ask in (face.invoke, face.stream):
        with pytest.raises(OutputParserException, match="max_tokens"):
            ask(cut, "Who?")
    raw: Any = model.with_structured_output(schema, method=method, include_raw=True, max_tokens=limit).invoke("Who?")
    assert isinstance(raw["raw"], AIMessage) and raw["parsed"] is None
    assert "cut off" in str(raw["parsing_error"])


def test_what_a_grammar_cannot_say_is_checked_by_pydantic(model: ChatLlamaCpp) -> None:
    class Never(BaseModel):
        """Something."""

        a: bool

        @field_validator("a")
        @classmethod
        def _no(cls, value: bool) -> bool:
            raise ValueError("not like this")

    with pytest.raises(OutputParserException, match="not like this"):
        model.with_structured_output(Never).invoke("x")


ONE_OR_TWO = {"enum": [1, 2]}
BROKEN: dict[str, dict[str, Any]] = {
    "not": {"enum": [1, 2], "not": {"type": "integer"}},
    "if": {"enum": [1, 2], "if": {"minimum": 0}, "then": {"minimum": 3}},
    "contains": {"type": "array", "items": ONE_OR_TWO, "minItems": 1, "maxItems": 2, "contains": {"const": 3}},
    "minContains": {
        "type": "array",
        "items": ONE_OR_TWO,
        "minItems": 1,
        "maxItems": 2,
        "contains": {},
        "minContains": 3,
    },
    "uniqueItems": {"type": "array", "items": {"enum": [1]}, "minItems": 2, "maxItems": 3, "uniqueItems": True},
    "propertyNames": {"properties": {"a": ONE_OR_TWO}, "required": ["a"], "propertyNames": {"const": "b"}},
    "dependentRequired": {"properties": {"a": ONE_OR_TWO}, "required": ["a"], "dependentRequired": {"a": ["b"]}},
    "dependentSchemas": {"properties": {"a": ONE_OR_TWO}, "required": ["a"], "dependentSchemas": {"a": False}},
    "oneOf": {"oneOf": [{"enum": [1, 2]}, {"type": "integer", "minimum": 1, "maximum": 2}]},
}
"""Keyword -> a schema with a keyword that no grammar holds, which refuses all that the grammar allows."""


def around(schema: dict[str, Any]) -> dict[str, Any]:
    object_schema = {"type": "object", "properties": {"x": schema}, "required": ["x"]}
    return {"title": "it", "description": "Something.", **object_schema}


@pytest.mark.full
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("keyword", BROKEN)
def test_what_a_grammar_cannot_say_is_checked_by_the_schema(
    model: ChatLlamaCpp, face: Face, method: Method, keyword: str
) -> None:
    structured = model.with_structured_output(around(BROKEN[keyword]), method=method)
    for ask in (face.invoke, face.stream):
        with pytest.raises(OutputParserException, match=r"\$\.x"):
            ask(structured, "Well?")
    raw: Any = face.invoke(
        model.with_structured_output(around(BROKEN[keyword]), method=method, include_raw=True), "Well?"
    )
    assert raw["parsed"] is None and isinstance(raw["parsing_error"], OutputParserException)


@pytest.mark.parametrize("method", METHODS)
def test_an_object_that_keeps_to_its_schema_passes(model: ChatLlamaCpp, face: Face, method: Method) -> None:
    structured = model.with_structured_output(around(ONE_OR_TWO | {"not": {"const": 3}}), method=method)
    for made in (face.invoke(structured, "Well?"), face.stream(structured, "Well?")[-1]):
        assert made in ({"x": 1}, {"x": 2})


def test_binding_a_tool_names_the_keywords_that_its_calls_may_break(
    model: ChatLlamaCpp, caplog: pytest.LogCaptureFixture
) -> None:
    class Tags(BaseModel):
        """Something that its class validates."""

        names: set[int] = Field(max_length=2)

    forget_warnings()
    model.bind_tools([Tags, PersonDict, SCHEMA])
    assert not caplog.records
    bound = model.bind_tools([around(BROKEN["not"])], tool_choice="it")
    [record] = caplog.records
    assert "'it'" in record.getMessage() and "not" in record.getMessage()
    message = bound.invoke("Well?")
    assert isinstance(message, AIMessage) and message.tool_calls[0]["args"]["x"] in (1, 2)
    vote = vote_of(message, extractor("text"), ToolVotes(), schemas_of([around(BROKEN["not"])]))
    assert vote.answer is None and vote.why_none == REFUSED_CALLS


@pytest.mark.full
def test_json_mode_gives_an_object(model: ChatLlamaCpp) -> None:
    mode = model.with_structured_output(method="json_mode", include_raw=True, max_tokens=2000)
    ended = 0
    for seed in range(3):
        made: Any = mode.invoke(f"Anything {seed}")
        assert made["raw"].text.startswith("{")
        ended += isinstance(made["parsed"], dict)
        assert isinstance(made["parsed"], dict) == (made["raw"].response_metadata["finish_reason"] == "stop")
    assert ended


@pytest.mark.full
def test_either_a_call_or_the_object(model: ChatLlamaCpp) -> None:
    """As agents ask for it: the first token decides."""
    both = model.with_structured_output(Person, tools=[PersonDict], include_raw=True, temperature=3.0)
    for seed in range(4):
        made: Any = both.invoke(f"Who {seed}?")
        assert made["parsing_error"] is None
        assert isinstance(made["parsed"], Person) != bool(made["raw"].tool_calls)
    bound = model.bind_tools([PersonDict], response_format=Person)
    message = bound.invoke("Who?")
    assert message.tool_calls or Person.model_validate_json(message.text)
    forced = model.bind_tools([PersonDict], response_format=Person, tool_choice="any", parallel_tool_calls=False)
    assert forced.invoke("Who?").tool_calls


GRAMMARS = {
    "root ::= [a-c]{2}": "[a-c]{2}",
    'root ::= ("é" | [α-ω]){3} " "? [😀-😂]': "[éα-ω]{3} ?[😀-😂]",  # of which tokens hold parts, and several
    'root ::= sum " = " [0-9]{1,4}\nsum ::= [1-9] (" + " [0-9]{1,2}){1,3}': r"[1-9]( \+ \d{1,2}){1,3} = \d{1,4}",
}


def test_a_grammar_of_ones_own(model: ChatLlamaCpp) -> None:
    vote = model.bind(grammar='root ::= "yes" | "no"')
    message = vote.invoke("Well?")
    assert message.text in ("yes", "no")
    assert message.response_metadata["finish_reason"] == "stop"
    assert merged(vote.stream("Well?")).text == message.text
    for gbnf, written in GRAMMARS.items():
        for _, sample in model.sample("Well?", n=4, grammar=gbnf):
            assert re.fullmatch(written, sample.text) and sample.response_metadata["finish_reason"] == "stop"
    bounded = model.invoke("Well?", response_format={"type": "text"}, max_tokens=5)
    assert bounded.response_metadata["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"grammar": "root = x"}, "grammar"),
        ({"grammar": " "}, "the grammar is empty"),
        ({"grammar": 'root ::= "a"', "response_format": {"type": "json_object"}}, "cannot be combined"),
        ({"grammar": 'root ::= "a"', "tools": [Person]}, "cannot be combined"),
        ({"response_format": {"type": "xml"}}, "not understood"),
        ({"response_format": {"type": "json_schema"}}, "not understood"),
        ({"response_format": "json"}, "not understood"),
        ({"response_format": {"type": "json_object", "schema": {"type": "strin"}}}, "strin"),
    ],
)
def test_wrong_formats_are_refused(model: ChatLlamaCpp, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        model.invoke("x", **options)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"schema": Person, "method": "magic"}, "unknown method 'magic'"),
        ({"schema": None}, "needs a schema"),
        ({"schema": Person, "method": "json_mode", "strict": True}, "no meaning"),
        ({"schema": 3}, "pydantic class"),
        ({"schema": {"type": "strin"}}, "strin"),
        ({"schema": 3, "method": "function_calling"}, "as a tool"),
    ],
)
def test_wrong_schemas_are_refused_at_once(model: ChatLlamaCpp, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        model.with_structured_output(**arguments)


def test_parsers_read_what_other_models_say_too() -> None:
    assert json_parser(SCHEMA).invoke(AIMessage('{"a": 1}')) == {"a": 1}
    with pytest.raises(OutputParserException, match="not valid JSON"):
        json_parser(Person).invoke(AIMessage("I would rather not."))
    assert tool_parser(Person, "Person").invoke(AIMessage("I would rather not.")) is None


@pytest.mark.parametrize("is_tool", [False, True], ids=["schema", "tool"])
@pytest.mark.parametrize(("kind", "most"), [(gguf.TokenType.NORMAL, 1024), (gguf.TokenType.CONTROL, 1023)])
def test_a_token_too_long_for_a_grammar(
    tmp_path: Path, face: Face, is_tool: bool, kind: gguf.TokenType, most: int
) -> None:
    options: dict[str, Any] = {"tools": [Person]} if is_tool else {"response_format": {"type": "json_object"}}
    path = write_tiny_model(tmp_path / "long.gguf", words=["x" * (most + 1)], word_kind=kind)
    with ChatLlamaCpp(model_path=path, max_tokens=3) as model:
        with pytest.raises(ConfigurationError, match=rf"long\.gguf .*token 259 .*{most + 1:,} bytes"):
            face.invoke(model, "Who?", **options)
        assert face.invoke(model, "Who?").usage_metadata
    path = write_tiny_model(tmp_path / "longest.gguf", words=["x" * most], word_kind=kind)
    with ChatLlamaCpp(model_path=path, max_tokens=3) as model:
        face.invoke(model, "Who?", **options)
